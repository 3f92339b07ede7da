// Initial values of the oracle.
#pragma once

#include "kernels/initialize.h"

namespace megatron::kernels::ref {

/// The standard normal number of a logical element.
double normal_at(PhiloxKey key, std::int64_t index);
/// The number in [−1, 1) of a logical element.
float uniform_at(PhiloxKey key, std::int64_t index);

}  // namespace megatron::kernels::ref
