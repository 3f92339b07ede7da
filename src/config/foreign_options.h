// Options of Megatron-LM that this version knows by name only: accepted without effect, or refused with a reason.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::config {

enum class ForeignClass : std::uint8_t { no_effect, refused, removed };

struct ForeignOption {
  std::vector<std::string> names;  // the name, then aliases
  bool is_switch = false;
  bool is_negated = false;             // a switch that turns the YAML field `key` off
  bool has_twin = false;               // exists as --no-NAME too
  std::string key;                     // YAML field
  int min_values = 0, max_values = 0;  // max -1: any number
  std::string type;                    // "int", "real", "text"
  std::vector<std::string> choices;
  std::string harmless;  // the value that asks for nothing; empty: none
  ForeignClass kind = ForeignClass::refused;
  std::string reason, instead;
};

class ForeignOptions {
 public:
  ForeignOptions();
  const std::vector<ForeignOption>& options() const { return options_; }
  const ForeignOption* find(std::string_view name) const;
  /// By YAML key; `negated` as for OptionTable::find_key.
  const ForeignOption* find_key(std::string_view key, bool& negated) const;
  std::vector<std::string> names() const;

 private:
  std::vector<ForeignOption> options_;
};

/// What to use instead of an option of an older version or a fork; empty where unknown. Underscores count as dashes.
std::string former_option_hint(std::string_view name);
/// What is wrong with the values of a foreign option, or nothing.
std::string check_foreign_values(const ForeignOption& option, const std::vector<std::string>& words);

}  // namespace megatron::config
