// Named sets of options that a run can start from (`--preset NAME`).
#pragma once

#include <string>
#include <vector>

namespace megatron::config {

struct Preset {
  std::string name, help;
  std::vector<std::string> args;
};

std::vector<Preset> presets();
/// A preset's size as architecture gpt2 or llama, for `megatron bench step`. Throws ConfigError naming the known ones.
std::vector<std::string> preset_args(const std::string& name, const std::string& architecture);

}  // namespace megatron::config
