#include "checkpoint/manifest.h"

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace megatron::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "megatron.cpp checkpoint";
constexpr std::int64_t kVersion = 1;

[[noreturn]] void fail(const std::string& path, const std::string& reason) {
  throw IoError(str_cat(path, ": ", reason));
}

const Json& member(const Json& object, const char* key, const std::string& where, const std::string& path) {
  if (!object.is_object()) fail(path, str_cat(where, " is not an object"));
  const auto found = object.find(key);
  if (found == object.end()) fail(path, str_cat(where, " has no \"", key, "\""));
  return *found;
}

std::string text_member(const Json& object, const char* key, const std::string& where, const std::string& path) {
  const Json& value = member(object, key, where, path);
  if (!value.is_string()) fail(path, str_cat("\"", key, "\" of ", where, " is not a string"));
  return value.get<std::string>();
}

std::int64_t count_member(const Json& object, const char* key, const std::string& where, const std::string& path) {
  const Json& value = member(object, key, where, path);
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0)
    fail(path, str_cat("\"", key, "\" of ", where, " is not a count"));
  return value.get<std::int64_t>();
}

}  // namespace

std::string manifest_to_json(const Manifest& manifest) {
  Json json{{"format", kFormat}, {"version", kVersion}, {"iteration", manifest.iteration}};
  Json& files = json["files"] = Json::object();
  for (const auto& [name, file] : manifest.files) files[name] = {{"bytes", file.bytes}, {"xxh3", file.xxh3}};
  Json& tensors = json["tensors"] = Json::object();
  for (const auto& [name, tensor] : manifest.tensors) tensors[name] = {{"file", tensor.file}, {"xxh3", tensor.xxh3}};
  return json.dump(1) + "\n";
}

Manifest manifest_from_json(const std::string& text, const std::string& path) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) fail(path, "is not valid JSON (damaged or cut short)");
  if (text_member(json, "format", "the manifest", path) != kFormat) fail(path, "is not a checkpoint manifest");
  const std::int64_t version = count_member(json, "version", "the manifest", path);
  if (version != kVersion) fail(path, str_cat("format version ", version, ", this program reads version ", kVersion));
  Manifest manifest;
  manifest.iteration = count_member(json, "iteration", "the manifest", path);
  for (const auto& [name, file] : member(json, "files", "the manifest", path).items()) {
    if (name.empty() || name.find('/') != std::string::npos) fail(path, str_cat("\"", name, "\" is not a file name"));
    manifest.files[name] = {count_member(file, "bytes", name, path), text_member(file, "xxh3", name, path)};
  }
  for (const auto& [name, tensor] : member(json, "tensors", "the manifest", path).items()) {
    manifest.tensors[name] = {text_member(tensor, "file", name, path), text_member(tensor, "xxh3", name, path)};
    if (manifest.files.count(manifest.tensors[name].file) == 0)
      fail(path, str_cat("tensor \"", name, "\" stands in \"", manifest.tensors[name].file, "\", which is not listed"));
  }
  return manifest;
}

}  // namespace megatron::checkpoint
