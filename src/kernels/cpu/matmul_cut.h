// How a matrix product is cut into blocks, tasks and tiles. No cut enters any element's bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/units.h"
#include "kernels/cpu/tile_kernels.h"

namespace megatron::kernels::cpu {

constexpr std::int64_t kMaxTaskPanels = 6;  // columns of a task, in panels of B: 192 on AVX-512
constexpr std::int64_t kMinTaskPanels = 3;
constexpr std::int64_t kMaxSharedPanels = 8;
constexpr std::int64_t kMinTaskTiles = 4;        // row tiles that are worth a task of their own
constexpr std::int64_t kSmallProduct = 1 << 22;  // FLOPs below which waking threads costs more than it gains

/// Part `index` of `parts` parts of [0, count) that differ by at most one.
inline Range part(std::int64_t count, std::int64_t parts, std::int64_t index) {
  const std::int64_t base = count / parts, extra = count % parts;
  const std::int64_t begin = index * base + std::min(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

/// How a block is cut into tasks, as many for one thread as for another where the shape allows it.
struct Cut {
  std::int64_t panels, column_tasks, row_tasks = 1;
  // Columns alone would not keep all threads busy: rows are cut too, and B is packed once by all threads.
  bool shared;

  Cut(const TileSize& size, std::int64_t n, std::int64_t tiles, std::int64_t num_threads)
      : panels(ceil_div(n, size.panel_columns)) {
    const std::int64_t wanted = num_threads == 1 ? 1 : 2 * num_threads;
    column_tasks = std::max(ceil_div(panels, kMaxTaskPanels), std::min(wanted, panels / kMinTaskPanels));
    shared = column_tasks < wanted;
    if (shared) {
      column_tasks = ceil_div(panels, kMaxSharedPanels);
      row_tasks =
          std::clamp<std::int64_t>(tiles / kMinTaskTiles, 1, round_up(ceil_div(2 * wanted, column_tasks), num_threads));
    } else if (column_tasks < 8 * num_threads) {
      column_tasks = std::min(panels, round_up(column_tasks, num_threads));
    }
  }
  Range columns(std::int64_t task) const { return part(panels, column_tasks, task); }
};

/// Tasks of rows × columns for which every thread packs for itself.
struct Grid {
  std::int64_t rows = 1, columns = 1;
  bool used = false;  // else all threads work on one block after the other

  /// `packs_a`: A is packed, not read where it is.
  Grid(const TileSize& size, std::int64_t m, std::int64_t n, std::int64_t k, bool packs_a, std::int64_t num_threads) {
    if (num_threads == 1 || 2 * m * n * k <= kSmallProduct) return;
    double least = kMostPacking;
    for (std::int64_t tasks = num_threads; tasks <= 4 * num_threads; tasks *= 2)
      for (std::int64_t r = 1; r <= tasks; ++r) {
        const std::int64_t c = tasks / r;
        if (r * c != tasks || r * size.max_rows > m || c * size.panel_columns > n) continue;
        const double cost = (packs_a ? kPackA : kReadA) * static_cast<double>(c) / static_cast<double>(n) +
                            kPackB * static_cast<double>(r) / static_cast<double>(m) +
                            kImbalance * static_cast<double>(num_threads) / static_cast<double>(tasks);
        if (cost >= least) continue;
        least = cost;
        rows = r;
        columns = c;
        used = true;
      }
  }

 private:
  // In a grid of r rows × c columns packing A costs 20·c/n of the product, B 7.5·r/m (measured on one Zen 4 core);
  // reading A where it is, once more for each column of the grid, next to nothing. The last: what is lost where threads
  // are not equally fast and have one task each.
  static constexpr double kPackA = 20.0, kReadA = 1.0, kPackB = 7.5, kImbalance = 0.02;
  static constexpr double kMostPacking = 0.15;  // sum of these above which the threads share what they pack
};

}  // namespace megatron::kernels::cpu
