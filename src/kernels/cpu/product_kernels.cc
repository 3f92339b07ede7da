#include "kernels/cpu/product_kernels.h"

#include "kernels/cpu/pair_kernels.h"
#include "kernels/cpu/widening.h"
#include "kernels/isa.h"

namespace megatron::kernels::cpu {
namespace {

constexpr std::int64_t kFloatBytes = 4;

const float* floats(const std::byte* matrix) { return reinterpret_cast<const float*>(matrix); }

// The packing of floats, with operands as bytes.
Packing float_packing() {
  return {kFloatBytes,
          1,
          1,
          kPanelRowStride,
          [](const std::byte* a, std::int64_t a_step, std::int64_t rows, std::int64_t depth, float* tile) {
            tile_kernels().copy_rows(floats(a), a_step / kFloatBytes, rows, depth, tile);
          },
          [](const std::byte* a, std::int64_t a_step, std::int64_t rows, std::int64_t depth, float* tile,
             std::int64_t tile_step) {
            tile_kernels().pack_columns(floats(a), a_step / kFloatBytes, rows, depth, tile, tile_step);
          },
          [](const std::byte* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth, float* panel) {
            tile_kernels().pack_transposed(floats(b), b_step / kFloatBytes, columns, depth, panel);
          },
          [](const std::byte* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth, float* panels,
             std::int64_t panels_step) {
            tile_kernels().pack_rows(floats(b), b_step / kFloatBytes, columns, depth, panels, panels_step);
          }};
}

}  // namespace

ProductKernels product_kernels(DType operands) {
  if (operands == DType::float32) return {&tile_kernels(), false, float_packing(), nullptr};
  const Widening& widened = widening(operands);
  if (operands == DType::float16) return {&tile_kernels(), false, widened.packing, widened.store_tile};
  if (uses_pair_instruction()) return {&pair_tiles(), false, pair_packing(), widened.store_tile};
  return {&flushing_tiles(), true, widened.packing, widened.store_tile};
}

}  // namespace megatron::kernels::cpu
