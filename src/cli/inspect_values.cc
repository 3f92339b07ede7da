// megatron inspect data of files whose header says float32 or float64.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "cli/inspect.h"
#include "data/indexed_dataset.h"
#include "data/length_histogram.h"

namespace megatron::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kShown = 8;

data::LengthHistogram document_lengths(const data::IndexedDataset& dataset) {
  data::LengthHistogram lengths;
  for (std::int64_t d = 0; d < dataset.num_documents(); ++d) {
    std::int64_t length = 0;
    for (std::int64_t s = dataset.document_start(d); s < dataset.document_start(d + 1); ++s)
      length += dataset.length(s);
    lengths.add(length);
  }
  return lengths;
}

/// The first values of the file.
std::vector<double> first_values(const data::IndexedDataset& dataset) {
  std::vector<double> values;
  for (std::int64_t s = 0; s < dataset.num_sequences() && std::ssize(values) < kShown; ++s) {
    const std::int64_t count = std::min(dataset.length(s), kShown - std::ssize(values));
    const std::vector<double> some = dataset.values(s, 0, count);
    values.insert(values.end(), some.begin(), some.end());
  }
  return values;
}

}  // namespace

int inspect_values(const std::vector<std::string>& prefixes, bool json) {
  Json sources = Json::array();
  for (const std::string& prefix : prefixes) {
    const data::IndexedDataset dataset(prefix);
    const data::LengthHistogram lengths = document_lengths(dataset);
    sources.push_back({{"source", prefix},
                       {"dtype", data::token_type_name(dataset.type())},
                       {"documents", dataset.num_documents()},
                       {"sequences", dataset.num_sequences()},
                       {"values", dataset.num_tokens()},
                       {"shortest", lengths.shortest},
                       {"longest", lengths.longest},
                       {"first_values", first_values(dataset)}});
  }
  if (json) {
    std::printf("%s\n", Json({{"sources", sources}}).dump().c_str());
    return 0;
  }
  for (const Json& source : sources)
    std::printf("%s: %s values, no token ids: %s documents of %s to %s values, %s in all; first %s\n",
                source["source"].get<std::string>().c_str(), source["dtype"].get<std::string>().c_str(),
                source["documents"].dump().c_str(), source["shortest"].dump().c_str(), source["longest"].dump().c_str(),
                source["values"].dump().c_str(), source["first_values"].dump().c_str());
  return 0;
}

}  // namespace megatron::cli
