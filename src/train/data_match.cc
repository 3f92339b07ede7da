#include "train/data_match.h"

#include "base/check.h"
#include "base/text.h"
#include "data/blended_dataset.h"

namespace megatron::train {
namespace {

using spec::DataSpec;

bool names_data(const DataSpec& data) {
  return data.mock_data || !data.data_path.empty() || !data.train_data_path.empty() || !data.train_data.empty() ||
         data.data_args_path || data.per_split_data_args_path;
}

std::string text(const std::vector<std::string>& words) { return words.empty() ? "nothing" : joined(words, " "); }
std::string text(const std::optional<std::string>& path) { return path.value_or("nothing"); }
std::string text(spec::DataloaderType type) { return type == spec::DataloaderType::single ? "single" : "cyclic"; }
std::string text(bool value) { return value ? "given" : "not given"; }
const std::string& text(const std::string& value) { return value; }
std::string text(std::uint64_t value) { return std::to_string(value); }

/// How many of the first samples of a weighted blend came from each file.
std::string given_by_each(const std::vector<std::string>& data_path, std::int64_t consumed) {
  const data::Blend blend = data::parse_blend(data_path, "--data-path");
  constexpr std::int64_t kMost = std::int64_t{1} << 26;  // of which the index still takes little time and memory
  if (!blend.weights || consumed <= 0 || consumed > kMost) return "";
  const data::BlendIndex index = data::build_weighted_blend(data::normalize_weights(*blend.weights), consumed);
  std::string counts;
  for (std::size_t i = 0; i < index.counts.size(); ++i)
    counts += str_cat(i == 0 ? "" : ", ", index.counts[i], " of ", blend.prefixes[i]);
  return str_cat(" (whose ", consumed, " samples so far: ", counts, ")");
}

}  // namespace

std::vector<std::string> data_differences(const spec::RunSpec& stored, const spec::RunSpec& run,
                                          std::int64_t consumed) {
  std::vector<std::string> lines;
  const DataSpec &a = stored.data, &b = run.data;
  if (!names_data(a) || !names_data(b)) return lines;
  const auto compare = [&](const char* option, const auto& before, const auto& now, const std::string& more = "") {
    if (!(before == now))
      lines.push_back(str_cat("warning: ", option, ": the run of the checkpoint had ", text(before), more,
                              ", this one has ", text(now), ": other samples follow, from index ", consumed, " on"));
  };
  compare("--data-path", a.data_path, b.data_path,
          a.data_path == b.data_path ? "" : given_by_each(a.data_path, consumed));
  compare("--train-data-path", a.train_data_path, b.train_data_path);
  compare("--train-data", a.train_data, b.train_data);
  compare("--data-args-path", a.data_args_path, b.data_args_path);
  compare("--per-split-data-args-path", a.per_split_data_args_path, b.per_split_data_args_path);
  compare("--mock-data", a.mock_data, b.mock_data);
  compare("--split", a.split, b.split);
  compare("--seed", stored.numerics.seed, run.numerics.seed);
  compare("--dataloader-type", a.dataloader_type, b.dataloader_type);
  return lines;
}

}  // namespace megatron::train
