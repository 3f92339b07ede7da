// Which instruction set the vector code of src/kernels/cpu uses in this process.
#pragma once

#include <string>
#include <vector>

namespace megatron::kernels {

/// Names of what this build and this machine can both do, best first; the last one ("scalar") runs anywhere.
std::vector<std::string> supported_isas();
/// The one in use.
std::string current_isa();
/// Uses `name` from now on, in all threads; empty: the best again. For tests and benchmarks, while no kernel runs.
/// Throws Error if `name` is not supported. Results do not depend on the choice, bit for bit.
void use_isa(const std::string& name);

}  // namespace megatron::kernels
