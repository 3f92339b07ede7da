// How fast this machine moves memory: what kernels that only read and write are compared with.
#pragma once

#include <cstdint>

#include "kernels/executor.h"

namespace megatron::kernels {

/// Bytes read plus bytes written per second by a copy of `bytes` bytes on all threads of the executor: the best of
/// `repetitions` with ordinary stores and as many with stores that go past the caches (which save reading what is
/// overwritten; the faster kind counts). Source and copy are memory of their own, not counted as the rank's; take them
/// several times larger than the last cache to measure memory. 0 on meta.
double copy_bandwidth(Executor& exec, std::int64_t bytes, int repetitions);

}  // namespace megatron::kernels
