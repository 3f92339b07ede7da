// The exit status of the program that belongs to an error.
#pragma once

#include <exception>

namespace megatron {

/// 2: ConfigError; 3: CommError; 1: everything else.
int exit_status(const std::exception& error);

}  // namespace megatron
