#include "kernels/cpu/bandwidth.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/bandwidth.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

void copy_piece(const float* from, float* to, std::int64_t count, bool past_caches) {
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    if (past_caches && valid == kLanes)
      hn::Stream(load(from + i), D(), to + i);
    else
      store_valid(load_valid(from + i, valid), to + i, valid);
  });
  if (past_caches) hwy::FlushStream();
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/parallel_rows.h"

namespace megatron::kernels::cpu {

HWY_EXPORT(copy_piece);

void copy_all(Executor& exec, ConstTensorView from, TensorView to, bool past_caches) noexcept {
  parallel_range(exec, from.numel(), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(copy_piece)(from.data<float>() + begin, to.data<float>() + begin, end - begin, past_caches);
  });
}

}  // namespace megatron::kernels::cpu
#endif
