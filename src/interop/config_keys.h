// Takes keys out of a JSON object one by one, collects what is wrong with them, and refuses those that nobody took.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::interop {

class ConfigKeys {
 public:
  /// `prefix` stands before key names in messages ("rope_parameters."). Both must outlive this object.
  ConfigKeys(const nlohmann::json& object, std::string prefix, std::vector<std::string>& problems);

  /// True if the key is there and not null.
  bool has(const char* key) const;
  /// The value, or what stands for an absent key; without it an absent key is a problem.
  std::int64_t count(const char* key, std::optional<std::int64_t> otherwise = std::nullopt);
  double number(const char* key, std::optional<double> otherwise = std::nullopt);
  bool boolean(const char* key, std::optional<bool> otherwise = std::nullopt);
  std::string text(const char* key, std::optional<std::string> otherwise = std::nullopt);
  /// The sub-object, or null if absent.
  const nlohmann::json* object(const char* key);
  /// A problem unless the key is absent or null, or holds `value`.
  void must_be(const char* key, const nlohmann::json& value);
  /// Marks keys that change nothing.
  void ignore(std::string_view key) { taken_.emplace(key); }
  /// A problem for each key that was not taken, null values excepted.
  void refuse_others();
  void problem(const std::string& text) { problems_.push_back(text); }
  /// "rope_parameters.factor"
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }

 private:
  const nlohmann::json* take(const char* key, bool required);

  const nlohmann::json& object_;
  std::string prefix_;
  std::vector<std::string>& problems_;
  std::set<std::string, std::less<>> taken_;
};

}  // namespace megatron::interop
