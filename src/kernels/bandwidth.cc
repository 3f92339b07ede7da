#include "kernels/bandwidth.h"

#include <algorithm>

#include "base/clock.h"
#include "base/units.h"
#include "kernels/cpu/bandwidth.h"
#include "kernels/elementwise.h"

namespace megatron::kernels {

double copy_bandwidth(Executor& exec, std::int64_t bytes, int repetitions) {
  MEGATRON_CHECK_GE(bytes, 1);
  if (exec.is_meta()) return 0.0;
  const auto allocator = tensor::Allocator::create(Device::cpu);
  const Shape shape{ceil_div(bytes, 4)};
  Tensor from = Tensor::empty(*allocator, shape, DType::float32, MemoryKind::scratch);
  Tensor to = Tensor::empty(*allocator, shape, DType::float32, MemoryKind::scratch);
  fill_zero(exec, from);
  fill_zero(exec, to);
  double best = 0.0;
  for (int i = 0; i < 2 * repetitions; ++i) {
    const auto begin = Clock::now();
    cpu::copy_all(exec, from, to, i % 2 == 1);
    const double seconds = seconds_since(begin);
    best = std::max(best, 2.0 * static_cast<double>(from.bytes()) / std::max(seconds, 1e-9));
  }
  return best;
}

}  // namespace megatron::kernels
