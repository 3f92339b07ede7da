// Initial values on vector units.
#pragma once

#include "kernels/initialize.h"

namespace megatron::kernels::cpu {

/// values[i] = scale·(normal number of logical element first + i), for i < count.
void normal_values(PhiloxKey key, float scale, std::int64_t first, std::int64_t count, float* values) noexcept;
/// The same with uniform numbers in [−1, 1).
void uniform_values(PhiloxKey key, float scale, std::int64_t first, std::int64_t count, float* values) noexcept;

}  // namespace megatron::kernels::cpu
