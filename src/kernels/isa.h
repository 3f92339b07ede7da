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

/// How products of bfloat16 are computed: by the processor's instruction for pairs of k (AVX512_BF16), or as floats.
/// Results do not depend on it, bit for bit; an instruction that rounds otherwise than kernels/matmul.h says is not
/// used.
bool uses_pair_instruction();
/// Why it is, or is not, used.
std::string pair_instruction_reason();
/// Allows or forbids the instruction from now on, in all threads. For tests and benchmarks, while no kernel runs.
void allow_pair_instruction(bool allowed);

}  // namespace megatron::kernels
