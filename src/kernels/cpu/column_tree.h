// Column sums over blocks of tokens by the canonical tree; see kernels/tree_sum.h.
#pragma once

#include "kernels/executor.h"

namespace megatron::kernels::cpu {

/// Tokens that are added one after the other before the tree begins.
constexpr std::int64_t kTokenBlock = 64;

/// out[j] += tree over r of parts[r·width + j]; rows ≥ 1. Level 0. Overwrites the first row of parts.
void add_tree_of_rows(Executor& exec, float* parts, std::int64_t rows, std::int64_t width, float* out) noexcept;

}  // namespace megatron::kernels::cpu
