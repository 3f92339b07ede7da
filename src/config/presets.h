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

}  // namespace megatron::config
