#include "data/data_paths.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/check.h"

namespace megatron::data {
namespace {

using Words = std::vector<std::string>;

std::string read_argument_file(const char* option, const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw IoError(str_cat(option, " ", path, ": cannot open: ", std::strerror(errno)));
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

Words words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), std::istream_iterator<std::string>()};
}

Words words_of(const nlohmann::json& value, const std::string& where) {
  if (value.is_null()) return {};
  if (value.is_string()) return words_of(value.get<std::string>());
  if (!value.is_array()) throw ConfigError(where + ": must be a list of paths (and weights) or one string of them");
  Words words;
  for (const auto& item : value) {
    if (!item.is_string() && !item.is_number())
      throw ConfigError(where + ": holds something that is neither a path nor a weight");
    words.push_back(item.is_string() ? item.get<std::string>() : item.dump());
  }
  return words;
}

void resolve_per_split(const std::string& path, spec::DataSpec& spec) {
  const std::string where = "--per-split-data-args-path " + path;
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(read_argument_file("--per-split-data-args-path", path));
  } catch (const nlohmann::json::exception& error) {
    throw ConfigError(str_cat(where, ": is not JSON: ", error.what()));
  }
  if (!json.is_object()) throw ConfigError(where + ": must be an object with train, valid and test");
  for (const auto& item : json.items()) {
    Words* const list = item.key() == "train"   ? &spec.train_data_path
                        : item.key() == "valid" ? &spec.valid_data_path
                        : item.key() == "test"  ? &spec.test_data_path
                                                : nullptr;
    if (list == nullptr) throw ConfigError(str_cat(where, ": key \"", item.key(), "\"; known are train, valid, test"));
    *list = words_of(item.value(), str_cat(where, ": \"", item.key(), "\""));
  }
  if (spec.train_data_path.empty() && spec.valid_data_path.empty() && spec.test_data_path.empty())
    throw ConfigError(where + ": names no data");
}

}  // namespace

spec::DataSpec resolve_data_paths(const spec::DataSpec& spec) {
  spec::DataSpec resolved = spec;
  const bool lists = !spec.data_path.empty() || !spec.train_data_path.empty() || !spec.valid_data_path.empty() ||
                     !spec.test_data_path.empty() || spec.mock_data || !spec.train_data.empty();
  if ((lists ? 1 : 0) + (spec.data_args_path ? 1 : 0) + (spec.per_split_data_args_path ? 1 : 0) > 1)
    throw ConfigError(
        "--data-args-path, --per-split-data-args-path and the other options that name data exclude each other");
  if (spec.data_args_path) {
    resolved.data_path = words_of(read_argument_file("--data-args-path", *spec.data_args_path));
    if (resolved.data_path.empty()) throw ConfigError(str_cat("--data-args-path ", *spec.data_args_path, ": is empty"));
  }
  if (spec.per_split_data_args_path) resolve_per_split(*spec.per_split_data_args_path, resolved);
  resolved.data_args_path.reset();
  resolved.per_split_data_args_path.reset();
  return resolved;
}

}  // namespace megatron::data
