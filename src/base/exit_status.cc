#include "base/exit_status.h"

#include "base/check.h"

namespace megatron {

int exit_status(const std::exception& error) {
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return 2;
  return dynamic_cast<const CommError*>(&error) != nullptr ? 3 : 1;
}

}  // namespace megatron
