#include <algorithm>
#include <filesystem>

#include "base/text.h"
#include "config/rules.h"
#include "config/text_value.h"

namespace megatron::config {
namespace {

bool per_split(const spec::DataSpec& d) {
  return !d.train_data_path.empty() || !d.valid_data_path.empty() || !d.test_data_path.empty();
}

void sources(RuleContext& c) {
  const auto& d = c.run().data;
  const int count = (d.mock_data ? 1 : 0) + (!d.data_path.empty() ? 1 : 0) + (per_split(d) ? 1 : 0) +
                    (c.given("--data-args-path") ? 1 : 0) + (c.given("--per-split-data-args-path") ? 1 : 0) +
                    (d.train_data.empty() ? 0 : 1);
  if (count > 1) {
    std::string_view second = d.mock_data ? "--mock-data" : "--train-data-path";
    for (std::string_view name : {"--train-data", "--data-args-path", "--per-split-data-args-path"})
      if (c.given(name)) second = name;
    c.error(
        {"--data-path", second},
        "more than one data source among --mock-data, --data-path and the per-split paths, or --train-data beside one");
  }
  if (count == 0 && c.mode() == ParseMode::validate) c.notice("no data: training needs --data-path or --mock-data");
  if (count == 0 && c.mode() == ParseMode::train) c.required("--data-path", "--data-path PREFIX, or --mock-data");
  if (c.mode() == ParseMode::train && !d.mock_data && count > 0 && d.tokenizer_type.empty() && !c.given("--vocab-size"))
    c.required("--tokenizer-type", "how the data became tokens (ByteLevel, or NullTokenizer --vocab-size)");
}

void per_split_paths(RuleContext& c) {
  if (!per_split(c.run().data) || !c.given("--split")) return;
  for (std::string_view name : {"--train-data-path", "--valid-data-path", "--test-data-path"})
    if (c.given(name)) return c.exclusive("--split", name);
}

void raw_text(RuleContext& c) {
  const auto& d = c.run().data;
  if (c.given("--per-split-data-args-path") && c.given("--split")) c.exclusive("--split", "--per-split-data-args-path");
  if (!d.train_data.empty() && !d.data_cache_path)
    c.error({"--train-data"}, "needs --data-cache-path DIR, where its tokens are kept between runs");
  if (d.train_data.empty() && c.given("--json-keys")) c.error({"--json-keys"}, "only with --train-data");
}

void split_string(RuleContext& c) {
  if (!c.switches().split) return;
  std::string rest = *c.switches().split;
  double sum = 0;
  int fields = 0;
  while (true) {
    const auto comma = rest.find(',');
    const std::string field(trim(std::string_view(rest).substr(0, comma)));
    const auto weight = parse_real(field);
    if (!weight || *weight < 0) {
      c.error({"--split"}, str_cat("field ", fields + 1, " \"", field, "\" is not a number of at least 0"));
      return;
    }
    sum += *weight;
    ++fields;
    if (comma == std::string::npos) break;
    rest = rest.substr(comma + 1);
  }
  if (fields > 3) c.error({"--split"}, str_cat(fields, " fields; at most 3: training, validation, test"));
  if (sum == 0) c.error({"--split"}, "all fields are 0");
}

void blend(RuleContext& c) {
  const auto& path = c.run().data.data_path;
  for (std::size_t i = 0; i + 1 < path.size() && path.size() % 2 == 0; i += 2) {
    const auto weight = parse_real(path[i]);
    if (weight && *weight < 0) c.error({"--data-path"}, str_cat("weight ", path[i], " is below 0"));
  }
}

void tokenizer(RuleContext& c) {
  const std::string& type = c.run().data.tokenizer_type;
  const std::string word = c.word("--tokenizer-type");
  if (c.given("--vocab-file") && !c.given("--merge-file") && (word.empty() || word == "GPT2BPETokenizer"))
    c.error({"--vocab-file"},
            "without --merge-file it is the WordPiece vocabulary of a bert model, not a decoder-only Transformer");
  if (type == "NullTokenizer" && c.run().data.null_tokenizer_eod_id && c.given("--vocab-size")) {
    const std::int64_t id = *c.run().data.null_tokenizer_eod_id;
    if (id < 0 || id >= c.run().model.vocab_size)
      c.error({"--null-tokenizer-eod-id", "--vocab-size"}, str_cat(id, " is not among the ", c.run().model.vocab_size,
                                                                   " ids; nearest: ", c.run().model.vocab_size - 1));
  }
}

void checkpoints(RuleContext& c) {
  const auto& k = c.run().checkpoint;
  if (k.save && !k.save_interval) c.error({"--save"}, "--save needs --save-interval");
  if (c.mode() == ParseMode::train && k.finetune && !k.load) c.error({"--finetune"}, "needs --load");
}

/// The file behind a path, whatever way leads to it; nothing for devices and pipes, which several may share.
std::optional<std::filesystem::path> file_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (path.empty() || (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
                       !std::filesystem::is_directory(status)))
    return std::nullopt;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error).lexically_normal();
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(absolute, error);
  return error ? absolute : resolved;
}

/// A file that the run writes is no other file of the run.
void files(RuleContext& c) {
  constexpr std::string_view kWritten[] = {"--trace", "--log-json", "--pipeline-schedule-out"};
  std::vector<std::pair<std::string_view, std::string>> others = {{"--config", c.config_file()}};
  const auto& data = c.run().data;
  for (const auto& [name, prefixes] :
       {std::pair{"--data-path", &data.data_path}, std::pair{"--train-data-path", &data.train_data_path},
        std::pair{"--valid-data-path", &data.valid_data_path}, std::pair{"--test-data-path", &data.test_data_path}})
    for (const std::string& prefix : *prefixes)
      for (const char* ending : {".bin", ".idx"}) others.emplace_back(name, prefix + ending);
  for (const std::string& path : data.train_data) others.emplace_back("--train-data", path);
  for (std::string_view name : {"--data-args-path", "--per-split-data-args-path"})
    others.emplace_back(name, c.word(name));
  for (std::string_view name : {"--pipeline-schedule-file", "--save", "--load"})
    others.emplace_back(name, c.word(name));
  for (std::string_view name : kWritten) {
    const std::string path = c.word(name);
    const auto file = file_of(path);
    for (const auto& [other, other_path] : others)
      if (file && file == file_of(other_path))
        c.error({name, other}, str_cat("both name ", path, "; what the run writes needs a file of its own"));
    others.emplace_back(name, path);
  }
}

}  // namespace

std::vector<Rule> data_rules() {
  return {{"sources", sources},
          {"per-split paths", per_split_paths},
          {"raw text", raw_text},
          {"split", split_string},
          {"blend", blend},
          {"tokenizer", tokenizer},
          {"checkpoints", checkpoints},
          {"files", files}};
}

}  // namespace megatron::config
