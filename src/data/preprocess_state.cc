#include "data/preprocess_state.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "tokenizer/identity.h"

namespace megatron::data {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "megatron preprocess 1";

PreprocessState state_of(const Json& json) {
  PreprocessState state;
  state.file = json.at("file").get<std::size_t>();
  state.offset = json.at("offset").get<std::int64_t>();
  state.lines = json.at("lines").get<std::int64_t>();
  PreprocessProgress& progress = state.progress;
  progress.documents = json.at("documents").get<std::int64_t>();
  progress.empty_documents = json.at("empty_documents").get<std::int64_t>();
  progress.tokens = json.at("tokens").get<std::int64_t>();
  progress.bytes = json.at("bytes").get<std::int64_t>();
  progress.input_done = json.at("input_done").get<std::int64_t>();
  progress.skipped = json.at("skipped").get<std::map<std::string, std::int64_t>>();
  progress.skipped_lines = json.at("skipped_lines").get<std::vector<std::string>>();
  for (const Json& writer : json.at("writers"))
    state.writers.push_back(
        {writer.at(0).get<std::int64_t>(), writer.at(1).get<std::int64_t>(), writer.at(2).get<std::int64_t>()});
  return state;
}

}  // namespace

std::string state_path(const std::string& output_prefix) { return output_prefix + ".resume"; }

std::string preprocess_key(const PreprocessConfig& config, const tokenizer::Tokenizer& tokenizer) {
  std::vector<std::string> parts = {
      kFormat, tokenizer.identity_hash(),
      str_cat(config.append_eod, config.lenient, config.encode.parse_special, static_cast<int>(config.encode.ends))};
  for (const std::string& path : config.inputs) {
    if (path == "-") return "";
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return "";
    parts.push_back(str_cat(path, " ", info.st_size, " ", info.st_mtim.tv_sec, " ", info.st_mtim.tv_nsec));
  }
  parts.insert(parts.end(), config.json_keys.begin(), config.json_keys.end());
  const std::vector<std::string_view> views(parts.begin(), parts.end());
  return tokenizer::content_digest(views);
}

std::optional<PreprocessState> load_state(const std::string& output_prefix, const std::string& key) {
  std::ifstream in(state_path(output_prefix), std::ios::binary);
  if (!in || key.empty()) return {};
  try {
    const Json json = Json::parse(in);
    if (json.at("key").get<std::string>() != key) return {};
    return state_of(json);
  } catch (const nlohmann::json::exception&) {
    return {};  // not ours, or of another version: start anew
  }
}

void save_state(const std::string& output_prefix, const std::string& key, const PreprocessState& state) {
  const PreprocessProgress& progress = state.progress;
  Json json = {{"key", key},
               {"file", state.file},
               {"offset", state.offset},
               {"lines", state.lines},
               {"documents", progress.documents},
               {"empty_documents", progress.empty_documents},
               {"tokens", progress.tokens},
               {"bytes", progress.bytes},
               {"input_done", progress.input_done},
               {"skipped", progress.skipped},
               {"skipped_lines", progress.skipped_lines}};
  json["writers"] = Json::array();
  for (const WriterPosition& writer : state.writers)
    json["writers"].push_back({writer.sequences, writer.tokens, writer.boundaries});
  // Names of files may hold any bytes.
  const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  write_whole_file(state_path(output_prefix), text);
  sync_folder_of(state_path(output_prefix));
}

void remove_state(const std::string& output_prefix) { ::unlink(state_path(output_prefix).c_str()); }

}  // namespace megatron::data
