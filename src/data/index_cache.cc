#include "data/index_cache.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/mapped_file.h"
#include "data/md5.h"
#include "data/npy.h"
#include "data/output_file.h"
#include "tokenizer/identity.h"

namespace megatron::data {
namespace {

using Json = nlohmann::ordered_json;
using Length = std::function<std::int64_t(std::int64_t)>;

constexpr std::int64_t kLargestInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kCheckedSamples = 1024;

/// Whether sample k + 1 starts where sample k ends, as the rule of build_gpt_index says.
bool follows(const GptIndex& index, std::int64_t k, const GptIndexConfig& config, const Length& length) {
  const std::int64_t x = config.extra_token ? 1 : 0, documents = index.documents.size();
  std::int64_t document = index.sample_document[k], offset = index.sample_offset[k];
  std::int64_t remaining = config.seq_length + x;
  for (; document < documents; ++document, offset = 0) {
    const std::int64_t available = length(index.documents[document]) - offset;
    if (available < 0) return false;
    remaining -= available;
    if (remaining <= 0)
      return index.sample_document[k + 1] == document &&
             index.sample_offset[k + 1] == offset + remaining + available - x;
  }
  return !config.drop_last_partial && k + 1 == index.plan.num_samples && index.sample_document[k + 1] == documents - 1;
}

/// From the start of sample k to that of the next, or some larger number than `most`.
std::int64_t tokens_between(const GptIndex& index, std::int64_t k, std::int64_t most, const Length& length) {
  const std::int64_t last = index.sample_document[k + 1];
  std::int64_t document = index.sample_document[k], tokens = index.sample_offset[k + 1] - index.sample_offset[k];
  if (document > last) return most + 1;
  for (; document < last && tokens <= most; ++document) tokens += length(index.documents[document]);
  return tokens < 0 ? most + 1 : tokens;
}

/// Every entry names something that is there, and no sample is longer than the rule says.
bool within(const GptIndex& index, const IndexRange& range, const GptIndexConfig& config, const Length& length) {
  for (std::int64_t i = 0; i < index.documents.size(); ++i)
    if (index.documents[i] < range.begin || index.documents[i] >= range.end) return false;
  for (std::int64_t i = 0; i < index.sample_document.size(); ++i) {
    const std::int64_t document = index.sample_document[i], offset = index.sample_offset[i];
    if (document < 0 || document >= index.documents.size()) return false;
    if (offset < 0 || offset > length(index.documents[document])) return false;
    if (i > 0 && tokens_between(index, i - 1, config.seq_length, length) > config.seq_length) return false;
  }
  for (std::int64_t i = 0; i < index.order.size(); ++i)
    if (index.order[i] < 0 || index.order[i] >= index.plan.num_samples) return false;
  return true;
}

bool fits(const GptIndex& index, const GptIndexConfig& config, const IndexRange& range, const Length& length) {
  if (!within(index, range, config, length)) return false;
  if (index.sample_document[0] != 0 || index.sample_offset[0] != 0) return false;
  const std::int64_t samples = index.plan.num_samples, checked = std::min(samples, kCheckedSamples);
  for (std::int64_t i = 0; i < checked; ++i) {
    const std::int64_t k = checked == 1
                               ? 0
                               : static_cast<std::int64_t>(static_cast<double>(i) / static_cast<double>(checked - 1) *
                                                           static_cast<double>(samples - 1));
    if (!follows(index, k, config, length)) return false;
  }
  return true;
}

/// Every sample once, and every sequence once an epoch.
bool are_permutations(const GptIndex& index, const IndexRange& range) {
  std::vector<bool> seen(static_cast<std::size_t>(index.plan.num_samples));
  for (std::int64_t i = 0; i < index.order.size(); ++i) {
    const auto sample = static_cast<std::size_t>(index.order[i]);
    if (seen[sample]) return false;
    seen[sample] = true;
  }
  std::vector<std::int32_t> times(static_cast<std::size_t>(range.size()), 0);
  for (std::int64_t i = 0; i < index.documents.size(); ++i)
    ++times[static_cast<std::size_t>(index.documents[i] - range.begin)];
  return std::all_of(times.begin(), times.end(), [&](std::int32_t n) { return n == times.front(); });
}

CachedFiles files_at(std::string base) {
  return {std::move(base), {"document_index.npy", "sample_index.npy", "shuffle_index.npy"}};
}

std::optional<GptIndex> load(const std::string& base, const std::string& description, const GptIndexPlan& plan,
                             const GptIndexConfig& config, const IndexRange& range, const Length& length) {
  const CachedFiles files = files_at(base);
  if (!holds_description(files, description)) return {};
  try {
    const std::optional<bool> undamaged = checksums_agree(files);
    if (undamaged == false) return {};
    const NpyFile documents = open_npy(base + "document_index.npy"), samples = open_npy(base + "sample_index.npy"),
                  order = open_npy(base + "shuffle_index.npy");
    using Shape = std::vector<std::int64_t>;
    if (documents.shape != Shape{plan.num_documents} || samples.shape != Shape{plan.num_samples + 1, 2} ||
        order.shape != Shape{plan.num_samples})
      return {};
    for (const NpyFile* file : {&documents, &samples, &order})
      if (npy_item_size(file->descr) < 4) return {};
    GptIndex index{plan, documents.column(0), samples.column(0), samples.column(1), order.column(0)};
    if (!fits(index, config, range, length) || !(undamaged || are_permutations(index, range))) return {};
    return index;
  } catch (const IoError&) {
    return {};  // damaged or not there: built anew
  }
}

void save(const std::string& base, const std::string& description, const GptIndex& index, std::int64_t longest) {
  std::filesystem::create_directories(std::filesystem::path(base).parent_path());
  const std::int64_t samples = index.plan.num_samples;
  write_npy(base + "document_index.npy", "<i4", index.documents.size(), 0,
            [&](std::int64_t i, std::int64_t) { return index.documents[i]; });
  write_npy(base + "sample_index.npy", std::max(index.documents.size(), longest) <= kLargestInt32 ? "<i4" : "<i8",
            samples + 1, 2, [&](std::int64_t i, std::int64_t column) {
              return column == 0 ? index.sample_document[i] : index.sample_offset[i];
            });
  write_npy(base + "shuffle_index.npy", samples < std::numeric_limits<std::uint32_t>::max() - 1 ? "<u4" : "<i8",
            samples, 0, [&](std::int64_t i, std::int64_t) { return index.order[i]; });
  write_description(files_at(base), description);
}

/// The whole file; unset where it cannot be read (it may be a folder).
std::optional<std::string> text_of(const std::string& path) {
  try {
    const MappedFile file(path);
    return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  } catch (const IoError&) {
    return {};
  }
}

/// A line per array: its name and digest.
std::string checksums(const CachedFiles& files) {
  std::string text;
  for (const std::string& name : files.arrays) {
    const MappedFile file(files.base + name);
    const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    text += str_cat(name, " ", tokenizer::content_digest(std::span(&bytes, 1)), "\n");
  }
  return text;
}

}  // namespace

std::string cache_base(const IndexCache& cache, const std::string& description, std::string_view class_name,
                       SplitName split) {
  const auto name = kSplitNames[static_cast<std::size_t>(split)];
  return (std::filesystem::path(cache.folder) / str_cat(md5(description), "-", class_name, "-", name, "-")).string();
}

bool holds_description(const CachedFiles& files, const std::string& description) {
  return text_of(files.base + "description.txt") == description;
}

std::optional<bool> checksums_agree(const CachedFiles& files) {
  const std::optional<std::string> written = text_of(files.base + "checksums.txt");
  if (!written) return {};
  return *written == checksums(files);
}

void write_description(const CachedFiles& files, const std::string& description) {
  write_whole_file(files.base + "checksums.txt", checksums(files));
  write_whole_file(files.base + "description.txt", description);
}

std::string keep_indices(const IndexCache& cache, const std::function<void()>& save) {
  try {
    save();
  } catch (const FileBusy&) {
    // Another run writes the same bytes.
  } catch (const std::exception& error) {
    return str_cat("--data-cache-path ", cache.folder, ": indices are not kept: ", error.what());
  }
  return "";
}

std::string tokenizer_description(const tokenizer::Tokenizer& tokenizer) {
  Json json;
  json["class"] = "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText";
  json["tokenizer_path"] = nullptr;
  if (tokenizer.type() == "NullTokenizer") {
    json["vocab_size"] = std::to_string(tokenizer.vocab_size());
    if (tokenizer.eod()) json["eod_id"] = std::to_string(*tokenizer.eod());
    if (tokenizer.pad() >= 0) json["pad_id"] = std::to_string(tokenizer.pad());
  } else {
    json["type"] = tokenizer.type();
    json["identity"] = tokenizer.identity_hash();
  }
  return json.dump();
}

std::string gpt_description(const IndexCache& cache, const std::string& prefix, SplitName split,
                            const GptIndexConfig& config) {
  Json json;
  json["class"] = "GPTDataset";
  json["dataset_path"] = prefix;
  json["num_samples"] = config.num_samples ? Json(*config.num_samples) : Json(nullptr);
  json["index_split"] = kSplitNames[static_cast<std::size_t>(split)];
  json["random_seed"] = config.seed;
  json["sequence_length"] = config.seq_length;
  json["split"] = cache.split ? Json(*cache.split) : Json(nullptr);
  json["split_matrix"] = nullptr;
  if (cache.split) {
    json["split_matrix"] = Json::array();
    const SplitMatrix matrix = parse_split(*cache.split);
    for (std::size_t i = 0; i < matrix.size(); ++i) {
      Json share = nullptr;
      if (matrix[i]) share = Json::array({matrix[i]->begin, matrix[i]->end});
      if (matrix[i] && i == 0) share[0] = 0;  // the first bookend is an integer there
      json["split_matrix"].push_back(share);
    }
  }
  json["tokenizer"] = cache.tokenizer.empty() ? Json(nullptr) : Json::parse(cache.tokenizer);
  return json.dump(4, ' ', true, Json::error_handler_t::replace);
}

GptIndex cached_gpt_index(const IndexCache& cache, const std::string& description, SplitName split,
                          const GptIndexConfig& config, const IndexRange& range, const Length& length,
                          std::string& note) {
  if (cache.folder.empty()) return build_gpt_index(config, range, length);
  std::int64_t tokens = 0, longest = 0;
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    tokens += length(i);
    longest = std::max(longest, length(i));
  }
  const GptIndexPlan plan = plan_gpt_index(config, range.size(), tokens);
  const std::string base = cache_base(cache, description, "GPTDataset", split);
  if (plan.num_samples > 0)
    if (auto index = load(base, description, plan, config, range, length)) return std::move(*index);
  GptIndex index = build_gpt_index(config, range, length);
  note = keep_indices(cache, [&] { save(base, description, index, longest); });
  return index;
}

}  // namespace megatron::data
