#include "kernels/rope.h"

#include "kernels/checks.h"
#include "kernels/cpu/rope.h"
#include "kernels/ref/rope.h"

namespace megatron::kernels {

void rope_in_place(Executor& exec, TensorView x, ConstTensorView cos, ConstTensorView sin,
                   const std::int64_t* positions, bool interleaved, bool inverse) {
  const KernelSpan span(exec, "rope_in_place");
  check_floating(x, "x");
  MEGATRON_CHECK_EQ(x.num_dims(), 3, "x has shape ", x.shape);
  MEGATRON_CHECK(x.shape[2] <= 1 || x.strides[2] == 1, "x: last stride ", x.strides[2]);
  const DType table = accumulation_dtype(x.dtype);
  MEGATRON_CHECK_EQ(cos.num_dims(), 2, "cos has shape ", cos.shape);
  check_view(cos, cos.shape, table, "cos");
  check_view(sin, cos.shape, table, "sin");
  MEGATRON_CHECK_LE(2 * cos.size(1), x.size(2), "rotated part of a head");
  check_pointer(exec, positions, x.size(0), "positions");
  const std::int64_t rotated = x.size(0) * x.size(1) * 2 * cos.size(1) * dtype_size(x.dtype);
  count_bytes(exec, 2 * rotated + 2 * x.size(0) * cos.size(1) * dtype_size(table));
  if (exec.is_meta() || x.numel() == 0) return;
  for (std::int64_t t = 0; t < x.size(0); ++t)
    MEGATRON_CHECK(positions[t] >= 0 && positions[t] < cos.size(0), "position ", positions[t], " of row ", t,
                   " outside the table of ", cos.size(0));
  if (is_double(x))
    ref::rope_in_place(x, cos, sin, positions, interleaved, inverse);
  else
    cpu::rope_in_place(exec, x, cos, sin, positions, interleaved, inverse);
}

}  // namespace megatron::kernels
