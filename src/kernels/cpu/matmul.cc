#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <cstring>

#include "base/units.h"
#include "kernels/cpu/tile_kernels.h"

// C is computed in blocks of rows × ranges of K. For each, all threads pack A; then tasks of some columns (and, where
// there are few columns, of some rows) are claimed one by one. A task keeps a packed block of B in its L2 cache and
// runs all its row tiles over it, chunk of K after chunk. What is cut where does not enter any element's bits.

namespace megatron::kernels::cpu {

namespace {
constexpr std::int64_t kRowBlock = 1024;
constexpr std::int64_t kDepthBlock = 8 * kMatmulChunk;
constexpr std::int64_t kTaskPanels = 6;          // columns of a task, in panels of B: 192 on AVX-512
constexpr std::int64_t kWantedTasks = 8;         // rows are cut too if columns alone give fewer tasks
constexpr std::int64_t kMinTaskTiles = 4;        // row tiles that are worth a task of their own
constexpr std::int64_t kSmallProduct = 1 << 22;  // FLOPs below which waking threads costs more than it gains

// Distance of two k in a panel of A by column.
std::int64_t column_step(const TileKernels& kernels) { return round_up(kernels.max_rows, 4); }

// Floats of one packed tile of A: rows × one chunk.
std::int64_t tile_floats(const TileKernels& kernels) {
  return round_up(std::max(kernels.max_rows * kPanelRowStride, column_step(kernels) * kMatmulChunk), 16);
}

// Few columns: B is packed once by all threads, since tasks of different rows share it.
bool shares_b(std::int64_t n) { return n <= 4 * kTaskPanels * kMaxPanelColumns; }

struct Range {
  std::int64_t begin, end;
};

// Part `index` of `parts` parts of [0, count) that differ by at most one.
Range part(std::int64_t count, std::int64_t parts, std::int64_t index) {
  const std::int64_t base = count / parts, extra = count % parts;
  const std::int64_t begin = index * base + std::min(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

// One block of rows and range of K.
class Block {
 public:
  Block(Executor& exec, const MatmulProblem& problem, const TileKernels& kernels, std::byte* scratch, Range rows,
        Range depth)
      : exec_(exec), p_(problem), kernels_(kernels), rows_(rows), depth_(depth) {
    tiles_ = ceil_div(rows.end - rows.begin, kernels.max_rows);
    chunks_ = ceil_div(depth.end - depth.begin, kMatmulChunk);
    panels_ = ceil_div(p_.n, kernels.panel_columns);
    shared_ = shares_b(p_.n);
    column_tasks_ = ceil_div(panels_, kTaskPanels);
    if (!shared_) column_tasks_ = std::min(panels_, std::max(column_tasks_, kWantedTasks));
    row_tasks_ = 1;
    if (shared_)
      row_tasks_ = std::clamp<std::int64_t>(tiles_ / kMinTaskTiles, 1, ceil_div(2 * kWantedTasks, column_tasks_));
    packed_a_ = reinterpret_cast<float*>(scratch);
    packed_b_ = packed_a_ + tiles_ * chunks_ * tile_floats(kernels);
  }

  void run(bool parallel) {
    const std::int64_t a_tasks = tiles_ * chunks_, b_tasks = shared_ ? panels_ * chunks_ : 0;
    for_each(parallel, a_tasks + b_tasks, [&](std::int64_t task, int) {
      if (task < a_tasks)
        pack_a(task / chunks_, task % chunks_);
      else
        pack_b((task - a_tasks) / chunks_, (task - a_tasks) % chunks_,
               shared_panel((task - a_tasks) / chunks_, (task - a_tasks) % chunks_));
    });
    for_each(parallel, column_tasks_ * row_tasks_, [&](std::int64_t task, int worker) {
      compute(part(tiles_, row_tasks_, task % row_tasks_), part(panels_, column_tasks_, task / row_tasks_), worker);
    });
  }

 private:
  template <typename Body>
  void for_each(bool parallel, std::int64_t count, const Body& body) {
    if (parallel) {
      exec_.parallel_for(count, body);
    } else {
      for (std::int64_t i = 0; i < count; ++i) body(i, 0);
    }
  }

  Range tile_rows(std::int64_t tile) const {
    const Range rows = part(rows_.end - rows_.begin, tiles_, tile);
    return {rows_.begin + rows.begin, rows_.begin + rows.end};
  }
  Range chunk_depth(std::int64_t chunk) const {
    const std::int64_t begin = depth_.begin + chunk * kMatmulChunk;
    return {begin, std::min(depth_.end, begin + kMatmulChunk)};
  }
  float* packed_tile(std::int64_t tile, std::int64_t chunk) const {
    return packed_a_ + (tile * chunks_ + chunk) * tile_floats(kernels_);
  }
  float* shared_panel(std::int64_t panel, std::int64_t chunk) const {
    return packed_b_ + (panel * chunks_ + chunk) * kMatmulChunk * kernels_.panel_columns;
  }

  void pack_a(std::int64_t tile, std::int64_t chunk) const {
    const Range rows = tile_rows(tile), depth = chunk_depth(chunk);
    float* to = packed_tile(tile, chunk);
    const std::int64_t height = rows.end - rows.begin;
    if (!p_.transpose_a) {
      for (std::int64_t i = 0; i < height; ++i)
        std::memcpy(to + i * kPanelRowStride, p_.a + (rows.begin + i) * p_.a_stride + depth.begin,
                    static_cast<std::size_t>(depth.end - depth.begin) * sizeof(float));
      return;
    }
    for (std::int64_t k = depth.begin; k < depth.end; ++k, to += column_step(kernels_))
      for (std::int64_t i = 0; i < height; ++i) to[i] = p_.a[k * p_.a_stride + rows.begin + i];
  }

  void pack_b(std::int64_t panel, std::int64_t chunk, float* to) const {
    const Range depth = chunk_depth(chunk);
    const std::int64_t column = panel * kernels_.panel_columns;
    const std::int64_t columns = std::min(kernels_.panel_columns, p_.n - column);
    if (p_.transpose_b)
      kernels_.pack_transposed(p_.b + column * p_.b_stride + depth.begin, p_.b_stride, columns, depth.end - depth.begin,
                               to);
    else
      kernels_.pack_rows(p_.b + depth.begin * p_.b_stride + column, p_.b_stride, columns, depth.end - depth.begin, to);
  }

  void compute(Range tiles, Range panels, int worker) const {
    const std::int64_t panel_floats = kMatmulChunk * kernels_.panel_columns;
    float* own = packed_b_ + worker * kTaskPanels * kMatmulChunk * kMaxPanelColumns;
    for (std::int64_t first = panels.begin; first < panels.end; first += kTaskPanels) {
      const std::int64_t last = std::min(panels.end, first + kTaskPanels);
      for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
        if (!shared_)
          for (std::int64_t panel = first; panel < last; ++panel)
            pack_b(panel, chunk, own + (panel - first) * panel_floats);
        for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile)
          for (std::int64_t panel = first; panel < last; ++panel)
            compute_tile(tile, chunk, panel,
                         shared_ ? shared_panel(panel, chunk) : own + (panel - first) * panel_floats);
      }
    }
  }

  void compute_tile(std::int64_t tile, std::int64_t chunk, std::int64_t panel, const float* b) const {
    const Range rows = tile_rows(tile), depth = chunk_depth(chunk);
    const std::int64_t column = panel * kernels_.panel_columns;
    run_tile(kernels_, !p_.transpose_a, packed_tile(tile, chunk), column_step(kernels_), b, kernels_.panel_columns,
             rows.end - rows.begin, std::min(kernels_.panel_columns, p_.n - column), depth.end - depth.begin,
             p_.c + rows.begin * p_.c_stride + column, p_.c_stride, p_.accumulate || depth.begin > 0);
  }

  Executor& exec_;
  const MatmulProblem& p_;
  const TileKernels& kernels_;
  Range rows_, depth_;
  std::int64_t tiles_, chunks_, panels_, column_tasks_, row_tasks_;
  bool shared_;
  float* packed_a_;
  float* packed_b_;
};
}  // namespace

std::int64_t matmul_scratch_bytes(std::int64_t m, std::int64_t n, std::int64_t k, int num_threads) {
  const TileKernels& kernels = tile_kernels();
  const std::int64_t chunks = ceil_div(std::min(k, kDepthBlock), kMatmulChunk);
  const std::int64_t tiles = ceil_div(std::min(m, kRowBlock), kernels.max_rows);
  const std::int64_t shared = chunks * kMatmulChunk * round_up(n, kernels.panel_columns);
  const std::int64_t own = num_threads * kTaskPanels * kMatmulChunk * kMaxPanelColumns;
  return (tiles * chunks * tile_floats(kernels) + (shares_b(n) ? shared : own)) * dtype_size(DType::float32);
}

void matmul(Executor& exec, const MatmulProblem& problem, std::byte* scratch) noexcept {
  if (problem.k == 0) {
    if (!problem.accumulate)
      for (std::int64_t i = 0; i < problem.m; ++i) std::fill_n(problem.c + i * problem.c_stride, problem.n, 0.0F);
    return;
  }
  const TileKernels& kernels = tile_kernels();
  const bool parallel = exec.num_threads() > 1 && 2 * problem.m * problem.n * problem.k > kSmallProduct;
  const std::int64_t row_blocks = ceil_div(problem.m, kRowBlock);
  for (std::int64_t block = 0; block < row_blocks; ++block)
    for (std::int64_t k = 0; k < problem.k; k += kDepthBlock)
      Block(exec, problem, kernels, scratch, part(problem.m, row_blocks, block),
            {k, std::min(problem.k, k + kDepthBlock)})
          .run(parallel);
}

}  // namespace megatron::kernels::cpu
