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
          [](const std::byte* a, std::int64_t a_step, TileRows rows, std::int64_t depth, float* tile,
             std::int64_t tile_step, std::int64_t tiles_step) {
            for_each_tile(a, a_step, kFloatBytes, rows, depth, tile, tile_step, tiles_step,
                          [&](const std::byte* from, std::int64_t height, std::int64_t count, float* to) {
                            tile_kernels().pack_columns(floats(from), a_step / kFloatBytes, height, count, to,
                                                        tile_step);
                          });
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

void ProductKernels::run(const TileRun& tile) const {
  if (in_pairs) {
    if (!run_pair_tile(tile))
      store_tile(tile.sums, tile.sums_step, tile.rows, tile.columns, tile.rounded, tile.rounded_step);
    return;
  }
  const float *a = tile.a, *b = tile.b;
  const auto run_one = flushing ? &run_flushing_tile : &cpu::run_tile;
  for (std::int64_t chunk = 0; chunk < tile.chunks; ++chunk, a += tile.a_chunk_step, b += tile.b_chunk_step) {
    tile.next_b->prefetch(tile.next_b_lines);
    tile.next_a->prefetch(tile.next_a_lines);
    run_one(*tiles, tile.a_by_row, a, tile.a_step, b, size.panel_columns, tile.rows, tile.columns,
            chunk + 1 < tile.chunks ? tile.chunk_units : tile.last_units, tile.sums, tile.sums_step,
            tile.add || chunk > 0);
  }
  if (tile.rounded != nullptr)
    store_tile(tile.sums, tile.sums_step, tile.rows, tile.columns, tile.rounded, tile.rounded_step);
}

ProductKernels product_kernels(DType operands) {
  const auto widened_kernels = [](const Tiles& tiles, bool flushing, const Packing& packing,
                                  decltype(ProductKernels::store_tile) store) {
    return ProductKernels{tiles, packing, false, &tiles, flushing, store};
  };
  if (operands == DType::float32) return widened_kernels(tile_kernels(), false, float_packing(), nullptr);
  const Widening& widened = widening(operands);
  if (operands == DType::float16) return widened_kernels(tile_kernels(), false, widened.packing, widened.store_tile);
  if (uses_pair_instruction()) return {pair_tile_size(), pair_packing(), true, nullptr, false, widened.store_tile};
  return widened_kernels(flushing_tiles(), true, widened.packing, widened.store_tile);
}

}  // namespace megatron::kernels::cpu
