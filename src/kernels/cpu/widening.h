// Packing of 16-bit operands as floats, for the tiles of the float32 product; and the store of 16-bit results.
#pragma once

#include "kernels/cpu/product_kernels.h"

namespace megatron::kernels::cpu {

struct Widening {
  Packing packing;
  void (*store_tile)(const float* sums, std::int64_t step, std::int64_t rows, std::int64_t columns, std::byte* c,
                     std::int64_t c_step);
};

/// bfloat16: subnormals become zero, and the odd k of each pair comes first, as the instruction for pairs adds them.
/// float16: exact, in ascending k.
const Widening& widening(DType operands);

}  // namespace megatron::kernels::cpu
