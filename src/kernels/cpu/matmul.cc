#include "kernels/cpu/matmul.h"

#include <algorithm>

#include "base/units.h"
#include "kernels/cpu/tile_kernels.h"

// A grid, where several threads find one that costs less than kMostPacking of the product (few threads, large
// products): each of its tasks is a product of its own on one thread, which packs what it needs for itself. Packing the
// same A or B twice then costs less than sharing it: packed data that another core has just written comes slowly
// wherever the cores have no cache in common.
//
// Blocks otherwise, and always on one thread: rows × ranges of K; for each, all threads pack A (and B), then tasks of
// some columns (or rows) are claimed one by one.
//
// Either way a thread keeps a packed block of B in its L2 cache and runs all its row tiles over it, chunk of K after
// chunk. What is cut where does not enter any element's bits.

namespace megatron::kernels::cpu {

namespace {
constexpr std::int64_t kRowBlock = 1024;
constexpr std::int64_t kMaxDepthChunks = 8;
constexpr std::int64_t kMaxTaskPanels = 6;  // columns of a task, in panels of B: 192 on AVX-512
constexpr std::int64_t kMinTaskPanels = 3;
constexpr std::int64_t kMaxSharedPanels = 8;
constexpr std::int64_t kMinTaskTiles = 4;        // row tiles that are worth a task of their own
constexpr std::int64_t kPackedTiles = 8;         // tiles of A that are packed at a time
constexpr std::int64_t kPackedRows = 4;          // and rows of a transposed A
constexpr std::int64_t kSmallProduct = 1 << 22;  // FLOPs below which waking threads costs more than it gains

// Distance of two k in a panel of A by column.
std::int64_t column_step(const TileKernels& kernels) { return round_up(kernels.max_rows, 4); }

// Floats of one packed tile of A: rows × one chunk.
std::int64_t tile_floats(const TileKernels& kernels) {
  return round_up(std::max(kernels.max_rows * kPanelRowStride, column_step(kernels) * kMatmulChunk), 16);
}

// Part `index` of `parts` parts of [0, count) that differ by at most one.
Range part(std::int64_t count, std::int64_t parts, std::int64_t index) {
  const std::int64_t base = count / parts, extra = count % parts;
  const std::int64_t begin = index * base + std::min(index, extra);
  return {begin, begin + base + (index < extra ? 1 : 0)};
}

// K of one block: packed A shall stay well below the third-level cache, and shorter blocks cost barriers.
std::int64_t depth_block(std::int64_t m) {
  return kMatmulChunk * std::clamp<std::int64_t>(kRowBlock / std::max<std::int64_t>(m, 1), 1, kMaxDepthChunks);
}

// How a block is cut into tasks, as many for one thread as for another where the shape allows it.
struct Cut {
  std::int64_t panels, column_tasks, row_tasks = 1;
  // Columns alone would not keep all threads busy: rows are cut too, and B is packed once by all threads.
  bool shared;

  Cut(const TileKernels& kernels, std::int64_t n, std::int64_t tiles, std::int64_t num_threads)
      : panels(ceil_div(n, kernels.panel_columns)) {
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

// The cache lines of a matrix, row after row, fetched into the second-level cache.
class LineWalk {
 public:
  LineWalk() = default;
  LineWalk(const float* row, std::int64_t stride, std::int64_t rows, std::int64_t columns)
      : row_(row), stride_(stride), rows_(rows), columns_(columns) {}
  std::int64_t count() const { return rows_ * ceil_div(columns_, kLineFloats); }
  void prefetch(std::int64_t lines) {
    for (; lines > 0 && rows_ > 0 && columns_ > 0; --lines) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += kLineFloats;
      if (at_ < columns_) continue;
      at_ = 0;
      row_ += stride_;
      --rows_;
    }
  }

 private:
  static constexpr std::int64_t kLineFloats = 16;
  const float* row_ = nullptr;
  std::int64_t stride_ = 0, rows_ = 0, columns_ = 0, at_ = 0;
};

// One block of rows and range of K.
class Block {
 public:
  /// `exec`: null on one thread.
  Block(Executor* exec, const MatmulProblem& problem, const TileKernels& kernels, std::byte* scratch, Range rows,
        Range depth)
      : exec_(exec),
        p_(problem),
        kernels_(kernels),
        rows_(rows),
        depth_(depth),
        tiles_(ceil_div(rows.end - rows.begin, kernels.max_rows)),
        cut_(kernels, problem.n, tiles_, num_threads()) {
    chunks_ = ceil_div(depth.end - depth.begin, kMatmulChunk);
    packed_a_ = reinterpret_cast<float*>(scratch);
    packed_b_ = packed_a_ + tiles_ * chunks_ * tile_floats(kernels);
  }

  void run() {
    const std::int64_t groups = ceil_div(tiles_, kPackedTiles);
    const std::int64_t a_tasks = groups * chunks_, b_tasks = cut_.shared ? cut_.panels * chunks_ : 0;
    for_each(a_tasks + b_tasks, [&](std::int64_t task, int) {
      if (task < a_tasks)
        pack_a(part(tiles_, groups, task / chunks_), task % chunks_);
      else
        pack_shared((task - a_tasks) / chunks_, (task - a_tasks) % chunks_);
    });
    for_each(cut_.column_tasks * cut_.row_tasks, [&](std::int64_t task, int worker) {
      compute(part(tiles_, cut_.row_tasks, task % cut_.row_tasks), task / cut_.row_tasks, worker);
    });
  }

 private:
  int num_threads() const { return exec_ == nullptr ? 1 : exec_->num_threads(); }

  template <typename Body>
  void for_each(std::int64_t count, const Body& body) {
    if (exec_ != nullptr) {
      exec_->parallel_for(count, body);
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

  // Tiles [tiles.begin, tiles.end) of one chunk.
  void pack_a(Range tiles, std::int64_t chunk) const {
    const Range depth = chunk_depth(chunk);
    if (!p_.transpose_a) {
      for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        const Range rows = tile_rows(tile);
        kernels_.copy_rows(p_.a + rows.begin * p_.a_stride + depth.begin, p_.a_stride, rows.end - rows.begin,
                           depth.end - depth.begin, packed_tile(tile, chunk));
      }
      return;
    }
    // Some rows of the source at a time for all tiles: they are contiguous there, and the rows far apart.
    for (std::int64_t k = depth.begin; k < depth.end; k += kPackedRows) {
      const std::int64_t count = std::min(kPackedRows, depth.end - k);
      for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        const Range rows = tile_rows(tile);
        kernels_.pack_columns(p_.a + k * p_.a_stride + rows.begin, p_.a_stride, rows.end - rows.begin, count,
                              packed_tile(tile, chunk) + (k - depth.begin) * column_step(kernels_),
                              column_step(kernels_));
      }
    }
  }

  void pack_shared(std::int64_t panel, std::int64_t chunk) const {
    pack_b({panel, panel + 1}, chunk, shared_panel(panel, chunk), 0);
  }

  // Panels [panels.begin, panels.end) of one chunk, panels_step floats apart.
  void pack_b(Range panels, std::int64_t chunk, float* to, std::int64_t panels_step) const {
    const Range depth = chunk_depth(chunk);
    const std::int64_t width = kernels_.panel_columns, column = panels.begin * width;
    const std::int64_t columns = std::min(p_.n, panels.end * width) - column;
    if (!p_.transpose_b) {
      kernels_.pack_rows(p_.b + depth.begin * p_.b_stride + column, p_.b_stride, columns, depth.end - depth.begin, to,
                         panels_step);
      return;
    }
    for (std::int64_t j = 0; j < columns; j += width, to += panels_step)
      kernels_.pack_transposed(p_.b + (column + j) * p_.b_stride + depth.begin, p_.b_stride,
                               std::min(width, columns - j), depth.end - depth.begin, to);
  }

  void compute(Range tiles, std::int64_t column_task, int worker) const {
    const Range panels = cut_.columns(column_task);
    const std::int64_t panel_floats = kMatmulChunk * kernels_.panel_columns;
    const std::int64_t num_tiles = (tiles.end - tiles.begin) * (panels.end - panels.begin);
    float* own = packed_b_ + worker * kMaxTaskPanels * kMatmulChunk * kMaxPanelColumns;
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      if (!cut_.shared) pack_b(panels, chunk, own, panel_floats);
      LineWalk ahead = next_source(column_task, chunk);
      const std::int64_t lines = ceil_div(ahead.count(), num_tiles);
      for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile)
        for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
          ahead.prefetch(lines);
          compute_tile(tile, chunk, panel,
                       cut_.shared ? shared_panel(panel, chunk) : own + (panel - panels.begin) * panel_floats);
        }
    }
  }

  // What this thread will probably pack next: the next chunk of the same columns, or those of the task that it gets if
  // all threads are equally fast.
  LineWalk next_source(std::int64_t column_task, std::int64_t chunk) const {
    if (cut_.shared) return {};
    Range depth = chunk_depth(chunk);
    if (chunk + 1 < chunks_) {
      depth = chunk_depth(chunk + 1);
    } else if (column_task += num_threads(); column_task < cut_.column_tasks) {
      depth = chunk_depth(0);
    } else {
      column_task %= cut_.column_tasks;
      depth = {depth_.end, std::min(p_.k, depth_.end + kMatmulChunk)};
    }
    const Range panels = cut_.columns(column_task);
    const std::int64_t column = panels.begin * kernels_.panel_columns, count = depth.end - depth.begin;
    const std::int64_t columns = std::min(p_.n, panels.end * kernels_.panel_columns) - column;
    if (p_.transpose_b) return {p_.b + column * p_.b_stride + depth.begin, p_.b_stride, columns, count};
    return {p_.b + depth.begin * p_.b_stride + column, p_.b_stride, count, columns};
  }

  void compute_tile(std::int64_t tile, std::int64_t chunk, std::int64_t panel, const float* b) const {
    const Range rows = tile_rows(tile), depth = chunk_depth(chunk);
    const std::int64_t column = panel * kernels_.panel_columns;
    run_tile(kernels_, !p_.transpose_a, packed_tile(tile, chunk), column_step(kernels_), b, kernels_.panel_columns,
             rows.end - rows.begin, std::min(kernels_.panel_columns, p_.n - column), depth.end - depth.begin,
             p_.c + rows.begin * p_.c_stride + column, p_.c_stride, p_.accumulate || depth.begin > 0);
  }

  Executor* exec_;
  const MatmulProblem& p_;
  const TileKernels& kernels_;
  Range rows_, depth_;
  std::int64_t tiles_, chunks_;
  Cut cut_;
  float* packed_a_;
  float* packed_b_;
};

/// On the threads of `exec` together, or on the calling thread where it is null.
void compute_blocks(Executor* exec, const MatmulProblem& problem, const TileKernels& kernels, std::byte* scratch) {
  const std::int64_t row_blocks = ceil_div(problem.m, kRowBlock);
  const std::int64_t step = depth_block(problem.m);
  for (std::int64_t block = 0; block < row_blocks; ++block)
    for (std::int64_t k = 0; k < problem.k; k += step)
      Block(exec, problem, kernels, scratch, part(problem.m, row_blocks, block), {k, std::min(problem.k, k + step)})
          .run();
}

std::int64_t block_scratch_floats(const TileKernels& kernels, std::int64_t m, std::int64_t n, std::int64_t k,
                                  std::int64_t num_threads) {
  const std::int64_t chunks = ceil_div(std::min(k, depth_block(m)), kMatmulChunk);
  const std::int64_t tiles = ceil_div(std::min(m, kRowBlock), kernels.max_rows);
  const Cut cut(kernels, n, tiles, num_threads);
  const std::int64_t shared = chunks * kMatmulChunk * cut.panels * kernels.panel_columns;
  const std::int64_t own = num_threads * kMaxTaskPanels * kMatmulChunk * kMaxPanelColumns;
  return tiles * chunks * tile_floats(kernels) + (cut.shared ? shared : own);
}

/// Tasks of rows × columns for which every thread packs for itself.
struct Grid {
  std::int64_t rows = 1, columns = 1;
  bool used = false;  // else all threads work on one block after the other

  Grid(const TileKernels& kernels, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t num_threads) {
    if (num_threads == 1 || 2 * m * n * k <= kSmallProduct) return;
    double least = kMostPacking;
    for (std::int64_t tasks = num_threads; tasks <= 4 * num_threads; tasks *= 2)
      for (std::int64_t r = 1; r <= tasks; ++r) {
        const std::int64_t c = tasks / r;
        if (r * c != tasks || r * kernels.max_rows > m || c * kernels.panel_columns > n) continue;
        const double cost =
            packing(m, n, r, c) + kImbalance * static_cast<double>(num_threads) / static_cast<double>(tasks);
        if (cost >= least) continue;
        least = cost;
        rows = r;
        columns = c;
        used = true;
      }
  }

 private:
  // In a grid of r rows × c columns packing A costs 20·c/n of the product, B 7.5·r/m (measured on one Zen 4 core). The
  // last: what is lost where threads are not equally fast and have one task each.
  static constexpr double kPackA = 20.0, kPackB = 7.5, kImbalance = 0.02;
  static constexpr double kMostPacking = 0.15;  // sum of these above which the threads share what they pack

  static double packing(std::int64_t m, std::int64_t n, std::int64_t r, std::int64_t c) {
    return kPackA * static_cast<double>(c) / static_cast<double>(n) +
           kPackB * static_cast<double>(r) / static_cast<double>(m);
  }
};

/// Scratch of one task of the grid.
std::int64_t task_scratch_floats(const TileKernels& kernels, const Grid& grid, std::int64_t m, std::int64_t n,
                                 std::int64_t k) {
  // Smaller parts may have a deeper block: the largest of both is enough.
  const std::int64_t high = ceil_div(m, grid.rows), width = ceil_div(n, grid.columns) + kernels.panel_columns;
  return round_up(std::max(block_scratch_floats(kernels, high, width, k, 1),
                           block_scratch_floats(kernels, m / grid.rows, width, k, 1)),
                  16);
}

/// Rows [rows) and panels of columns [panels) of a product.
MatmulProblem part_of(const MatmulProblem& p, const TileKernels& kernels, Range rows, Range panels) {
  MatmulProblem q = p;
  const std::int64_t column = panels.begin * kernels.panel_columns;
  q.m = rows.end - rows.begin;
  q.n = std::min(p.n, panels.end * kernels.panel_columns) - column;
  q.a += p.transpose_a ? rows.begin : rows.begin * p.a_stride;
  q.b += p.transpose_b ? column * p.b_stride : column;
  q.c += rows.begin * p.c_stride + column;
  return q;
}
}  // namespace

std::int64_t matmul_scratch_bytes(std::int64_t m, std::int64_t n, std::int64_t k, int num_threads) {
  const TileKernels& kernels = tile_kernels();
  const Grid grid(kernels, m, n, k, num_threads);
  const std::int64_t floats = grid.used ? num_threads * task_scratch_floats(kernels, grid, m, n, k)
                                        : block_scratch_floats(kernels, m, n, k, num_threads);
  return floats * dtype_size(DType::float32);
}

void matmul(Executor& exec, const MatmulProblem& problem, std::byte* scratch) noexcept {
  const std::int64_t m = problem.m, n = problem.n, k = problem.k;
  if (k == 0) {
    if (!problem.accumulate)
      for (std::int64_t i = 0; i < m; ++i) std::fill_n(problem.c + i * problem.c_stride, n, 0.0F);
    return;
  }
  const TileKernels& kernels = tile_kernels();
  const Grid grid(kernels, m, n, k, exec.num_threads());
  if (!grid.used) {
    const bool alone = exec.num_threads() == 1 || 2 * m * n * k <= kSmallProduct;
    return compute_blocks(alone ? nullptr : &exec, problem, kernels, scratch);
  }
  const std::int64_t panels = ceil_div(n, kernels.panel_columns);
  const std::int64_t own = task_scratch_floats(kernels, grid, m, n, k) * dtype_size(DType::float32);
  exec.parallel_for(grid.rows * grid.columns, [&](std::int64_t task, int worker) {
    const Range rows = part(m, grid.rows, task % grid.rows), columns = part(panels, grid.columns, task / grid.rows);
    compute_blocks(nullptr, part_of(problem, kernels, rows, columns), kernels, scratch + worker * own);
  });
}

}  // namespace megatron::kernels::cpu
