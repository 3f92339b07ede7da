#include "interop/config_keys.h"

#include <cmath>
#include <utility>

#include "base/check.h"

namespace megatron::interop {

using Json = nlohmann::json;

ConfigKeys::ConfigKeys(const Json& object, std::string prefix, std::vector<std::string>& problems)
    : object_(object), prefix_(std::move(prefix)), problems_(problems) {}

bool ConfigKeys::has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

const Json* ConfigKeys::take(const char* key, bool required) {
  taken_.emplace(key);
  if (has(key)) return &object_.at(key);
  if (required) problem(str_cat(full(key), " is missing"));
  return nullptr;
}

std::int64_t ConfigKeys::count(const char* key, std::optional<std::int64_t> otherwise) {
  const Json* const value = take(key, !otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(1);
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > 0 && value->get<std::uint64_t>() < (1ULL << 40))
    return value->get<std::int64_t>();
  problem(str_cat(full(key), " = ", value->dump(), " is not a positive count"));
  return 1;
}

double ConfigKeys::number(const char* key, std::optional<double> otherwise) {
  const Json* const value = take(key, !otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(1.0);
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  problem(str_cat(full(key), " = ", value->dump(), " is not a number"));
  return 1.0;
}

bool ConfigKeys::boolean(const char* key, std::optional<bool> otherwise) {
  const Json* const value = take(key, !otherwise.has_value());
  if (value == nullptr) return otherwise.value_or(false);
  if (value->is_boolean()) return value->get<bool>();
  problem(str_cat(full(key), " = ", value->dump(), " is not true or false"));
  return false;
}

std::string ConfigKeys::text(const char* key, std::optional<std::string> otherwise) {
  const Json* const value = take(key, !otherwise.has_value());
  if (value == nullptr) return otherwise.value_or("");
  if (value->is_string()) return value->get<std::string>();
  problem(str_cat(full(key), " = ", value->dump(), " is not a string"));
  return {};
}

const Json* ConfigKeys::object(const char* key) {
  const Json* const value = take(key, false);
  if (value == nullptr || value->is_object()) return value;
  problem(str_cat(full(key), " is not an object"));
  return nullptr;
}

void ConfigKeys::must_be(const char* key, const Json& expected) {
  const Json* const value = take(key, false);
  if (value != nullptr && *value != expected)
    problem(str_cat(full(key), " = ", value->dump(), " is not supported (only ", expected.dump(), ")"));
}

void ConfigKeys::refuse_others() {
  for (const auto& [key, value] : object_.items())
    if (!value.is_null() && taken_.find(key) == taken_.end())
      problem(str_cat(full(key), " is unknown: it may change what the model computes"));
}

}  // namespace megatron::interop
