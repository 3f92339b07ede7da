#include "config/option_table.h"

#include <algorithm>
#include <iterator>

namespace megatron::config {

std::string key_of(const std::string& name) {
  std::string key = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string range_text(const Option& option) {
  std::string text;
  if (option.min) text = str_cat(option.above_min ? "above " : "at least ", format_real(*option.min));
  if (option.max)
    text += str_cat(text.empty() ? "" : ", ", option.below_max ? "below " : "at most ", format_real(*option.max));
  return text;
}

OptionTable::OptionTable() {
  for (auto topic : {model_options, parallel_options, pipeline_options, recompute_options, optimizer_options,
                     batch_options, data_options, checkpoint_options, log_options, described_options}) {
    std::vector<Option> rows = topic();
    std::move(rows.begin(), rows.end(), std::back_inserter(options_));
  }
}

const Option* OptionTable::find(std::string_view name) const {
  for (const Option& option : options_) {
    if (option.name == name || std::find(option.aliases.begin(), option.aliases.end(), name) != option.aliases.end())
      return &option;
  }
  return nullptr;
}

const Option* OptionTable::find_key(std::string_view key, bool& negated) const {
  for (const Option& option : options_) {
    negated = option.form == Form::set_false && option.dest == key;
    if (option.dest == key || key_of(option.name) == key) return &option;
    for (const std::string& alias : option.aliases)
      if (key_of(alias) == key) return &option;
  }
  negated = false;
  return nullptr;
}

std::vector<std::string> OptionTable::names() const {
  std::vector<std::string> names;
  for (const Option& option : options_) {
    names.push_back(option.name);
    names.insert(names.end(), option.aliases.begin(), option.aliases.end());
  }
  return names;
}

}  // namespace megatron::config
