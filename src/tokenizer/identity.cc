#include "tokenizer/identity.h"

#include <xxhash.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/mapped_file.h"

namespace megatron::tokenizer {
namespace {

/// Calls f(key, member) for every option; files apart, because their place says nothing about the ids.
template <typename Options, typename F>
void for_each_file(Options& options, F f) {
  f("vocab_file", options.vocab_file);
  f("merge_file", options.merge_file);
  f("tokenizer_model", options.tokenizer_model);
}

template <typename Options, typename F>
void for_each_setting(Options& options, F f) {
  f("vocab_size", options.vocab_size);
  f("eod_id", options.null_eod_id);
  f("pad_id", options.null_pad_id);
  f("tiktoken_pattern", options.tiktoken_pattern);
  f("tiktoken_num_special_tokens", options.tiktoken_num_special_tokens);
  f("special_tokens", options.special_tokens);
  f("vocab_extra_ids", options.vocab_extra_ids);
  f("sentencepiece_legacy", options.sentencepiece_legacy);
  f("sentencepiece_keep_extra_whitespaces", options.sentencepiece_keep_extra_whitespaces);
}

void put(nlohmann::ordered_json& json, const char* key, const std::optional<std::int64_t>& value) {
  if (value) json[key] = *value;
}
void put(nlohmann::ordered_json& json, const char* key, const std::string& value) {
  if (!value.empty()) json[key] = value;
}
void put(nlohmann::ordered_json& json, const char* key, const std::vector<std::string>& value) {
  if (!value.empty()) json[key] = value;
}
void put(nlohmann::ordered_json& json, const char* key, std::int64_t value) {
  if (value != 0) json[key] = value;
}
void put(nlohmann::ordered_json& json, const char* key, bool value) {
  if (value) json[key] = value;
}

template <typename T>
void take(const nlohmann::json& json, const char* key, std::optional<T>& value) {
  if (json.contains(key)) value = json.at(key).get<T>();
}
template <typename T>
void take(const nlohmann::json& json, const char* key, T& value) {
  if (json.contains(key)) value = json.at(key).get<T>();
}

}  // namespace

std::string read_tokenizer_file(std::string_view option, const std::string& path) {
  if (std::filesystem::is_directory(path)) throw IoError(str_cat(option, " ", path, ": is a folder, not a file"));
  try {
    const MappedFile file(path);
    return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  } catch (const IoError& error) {
    throw IoError(str_cat(option, " ", error.what()));
  }
}

std::string content_digest(std::span<const std::string_view> parts) {
  XXH3_state_t* state = XXH3_createState();
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state);
  for (const std::string_view part : parts) {
    const std::array<unsigned long long, 1> size = {part.size()};
    XXH3_128bits_update(state, size.data(), sizeof(size));
    XXH3_128bits_update(state, part.data(), part.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

std::string identity_of_files(std::string_view type, const TokenizerOptions& options, std::string_view content) {
  nlohmann::ordered_json json;
  json["type"] = type;
  for_each_file(options, [&](const char* key, const std::string& path) {
    if (!path.empty()) json["files"][key] = std::filesystem::absolute(path).lexically_normal().string();
  });
  for_each_setting(options, [&](const char* key, const auto& value) { put(json, key, value); });
  json["content"] = content;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

TokenizerOptions options_of_identity(std::string_view identity) {
  TokenizerOptions options;
  try {
    const nlohmann::json json = nlohmann::json::parse(identity);
    const nlohmann::json files = json.value("files", nlohmann::json::object());
    for_each_file(options, [&](const char* key, std::string& path) { take(files, key, path); });
    for_each_setting(options, [&](const char* key, auto& value) { take(json, key, value); });
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError(str_cat("not the identity of a tokenizer: ", identity.substr(0, 80), ": ", error.what()));
  }
  return options;
}

}  // namespace megatron::tokenizer
