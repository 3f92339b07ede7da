#include "data/merge.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "base/check.h"
#include "data/indexed_dataset.h"
#include "data/split.h"
#include "data/tokenizer_stamp.h"

namespace megatron::data {
namespace {

namespace fs = std::filesystem;

bool same_dataset(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return a == b || fs::equivalent(a + ".idx", b + ".idx", ignored);
}

WrittenDataset publish(IndexedDatasetWriter& writer, const std::string& prefix, std::int64_t documents,
                       const std::optional<std::string>& stamp) {
  writer.seal();
  publish_with_stamp(writer, prefix, stamp);
  return {prefix, documents, writer.num_sequences(), writer.num_tokens(), ""};
}

WrittenDataset write_range(const IndexedDataset& dataset, const std::string& prefix, const IndexRange& range) {
  if (same_dataset(dataset.prefix(), prefix)) throw ConfigError(str_cat("--output-prefix ", prefix, ": is the input"));
  IndexedDatasetWriter writer(prefix, dataset.type(), dataset.has_modes());
  writer.add_documents(dataset, range.begin, range.end);
  return publish(writer, prefix, range.size(), read_stamp(dataset.prefix()));
}

/// A part that is not written must not lie there from an earlier cut: its documents are in other parts now.
void check_absent(const std::string& prefix) {
  if (fs::exists(prefix + ".idx") || fs::exists(prefix + ".bin"))
    throw ConfigError(
        str_cat(prefix, ".idx: is left from an earlier cut, and this one has no documents for it; remove it"));
}

}  // namespace

std::vector<std::string> datasets_in(const std::string& folder) {
  std::set<std::string> bins, indices;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::path& path = at->path();
    if (path.extension() == ".bin") bins.insert(path.stem().string());
    if (path.extension() == ".idx") indices.insert(path.stem().string());
  }
  if (error) throw IoError(str_cat(folder, ": cannot be read: ", error.message()));
  for (const std::string& name : bins)
    if (indices.count(name) == 0) throw IoError(str_cat((fs::path(folder) / name).string(), ".bin: has no .idx"));
  for (const std::string& name : indices)
    if (bins.count(name) == 0) throw IoError(str_cat((fs::path(folder) / name).string(), ".idx: has no .bin"));
  if (bins.empty()) throw IoError(folder + ": holds no .bin/.idx pair");
  std::vector<std::string> prefixes;
  for (const std::string& name : bins) prefixes.push_back((fs::path(folder) / name).string());
  return prefixes;
}

WrittenDataset merge_datasets(const std::vector<std::string>& inputs, const std::string& output_prefix,
                              bool multimodal) {
  MEGATRON_CHECK(!inputs.empty(), "nothing to merge");
  std::unique_ptr<IndexedDatasetWriter> writer;
  std::vector<std::string> stamped, unstamped;
  std::int64_t documents = 0;
  for (const std::string& input : inputs) {
    if (same_dataset(input, output_prefix))
      throw ConfigError(str_cat("--output-prefix ", output_prefix, ": is one of the inputs"));
    const IndexedDataset dataset(input);
    if (multimodal != dataset.has_modes() && dataset.num_sequences() > 0)
      throw ConfigError(str_cat(input, multimodal ? ": has no modes, but --multimodal is given"
                                                  : ": has modes; give --multimodal to keep them"));
    (read_stamp(input) ? stamped : unstamped).push_back(input);
    if (!stamped.empty()) check_same_stamp(stamped.front(), stamped.back());
    if (!writer) writer = std::make_unique<IndexedDatasetWriter>(output_prefix, dataset.type(), multimodal);
    writer->add_dataset(dataset);
    documents += dataset.num_documents();
  }
  const bool known = unstamped.empty();
  WrittenDataset written =
      publish(*writer, output_prefix, documents, known ? read_stamp(stamped.front()) : std::nullopt);
  if (!known && !stamped.empty())
    written.note =
        str_cat(unstamped.front(), " has no ", stamp_path(unstamped.front()), ": whether its ids are those of ",
                stamped.front(), "'s tokenizer is not known, and training will not check it");
  return written;
}

std::vector<WrittenDataset> split_dataset(const std::string& input, const std::string& output_prefix,
                                          const std::string& split) {
  const SplitMatrix matrix = parse_split(split);
  const IndexedDataset dataset(input);
  std::array<IndexRange, 3> ranges;
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    if (matrix[i]) ranges[i] = split_range(*matrix[i], dataset.num_documents());
    if (ranges[i].size() == 0) check_absent(str_cat(output_prefix, "_", kSplitNames[i]));
  }
  std::vector<WrittenDataset> written;
  for (std::size_t i = 0; i < matrix.size(); ++i)
    if (ranges[i].size() > 0)
      written.push_back(write_range(dataset, str_cat(output_prefix, "_", kSplitNames[i]), ranges[i]));
  return written;
}

std::vector<WrittenDataset> split_into_parts(const std::string& input, const std::string& output_prefix,
                                             std::int64_t parts) {
  const IndexedDataset dataset(input);
  const std::int64_t documents = dataset.num_documents();
  if (parts < 1 || parts > documents)
    throw ConfigError(str_cat("--parts ", parts, ": ", input, " has ", documents, " documents"));
  std::vector<WrittenDataset> written;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < parts; ++i) {
    const std::int64_t end = begin + documents / parts + (i < documents % parts ? 1 : 0);
    char number[32];
    std::snprintf(number, sizeof(number), "_%05lld", static_cast<long long>(i));
    written.push_back(write_range(dataset, output_prefix + number, {begin, end}));
    begin = end;
  }
  return written;
}

}  // namespace megatron::data
