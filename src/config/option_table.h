// All options that this version knows by a row of their own, in the order in which `megatron options` lists them.
#pragma once

#include <string_view>
#include <vector>

#include "config/option.h"

namespace megatron::config {

std::vector<Option> model_options();
std::vector<Option> parallel_options();
std::vector<Option> recompute_options();
std::vector<Option> pipeline_options();
std::vector<Option> optimizer_options();
std::vector<Option> batch_options();
std::vector<Option> data_options();
std::vector<Option> tokenizer_options();  // part of data_options
std::vector<Option> checkpoint_options();
std::vector<Option> log_options();
/// Options of parts that are described and counted but not built.
std::vector<Option> described_options();

class OptionTable {
 public:
  OptionTable();
  const std::vector<Option>& options() const { return options_; }
  /// By name or alias ("--seq-len"); null where unknown.
  const Option* find(std::string_view name) const;
  /// By YAML key: an option's spelling or its destination field. `negated` tells that the key is the positive field of
  /// a switch that turns it off.
  const Option* find_key(std::string_view key, bool& negated) const;
  std::vector<std::string> names() const;

 private:
  std::vector<Option> options_;
};

}  // namespace megatron::config
