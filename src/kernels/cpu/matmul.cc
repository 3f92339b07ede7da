#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <cstring>

#include "base/units.h"
#include "kernels/cpu/matmul_cut.h"
#include "kernels/cpu/product_kernels.h"

// A grid, where several threads find one that costs less than kMostPacking of the product (few threads, large
// products): each of its tasks is a product of its own on one thread, which packs what it needs for itself. Packing the
// same A or B twice then costs less than sharing it: packed data that another core has just written comes slowly
// wherever the cores have no cache in common.
//
// Blocks otherwise, and always on one thread: rows × ranges of K; for each, all threads pack A (and B), then tasks of
// some columns (or rows) are claimed one by one.
//
// A by rows in pairs of bfloat16 is not packed where its rows are apart enough in the cache: a unit lies there as the
// tiles take it.
//
// Either way a thread keeps a packed block of B in its L2 cache, a group of chunks of K deep, and runs all its row
// tiles over it, group after group. A tile goes through the chunks of a group before the next tile comes.
//
// A 16-bit C is rounded once: its sums stay in float32 from chunk to chunk, in the tile's own memory where one group is
// all of K, else in scratch for the rows of a block.
//
// Packed data is counted in units of four bytes (product_kernels.h). What is cut where does not enter any element's
// bits.

namespace megatron::kernels::cpu {

namespace {
constexpr std::int64_t kRowBlock = 1024;
constexpr std::int64_t kMaxDepthChunks = 8;
constexpr std::int64_t kPackedTiles = 8;     // tiles of A that are packed at a time
constexpr std::int64_t kGroupUnits = 384;    // of one column of B: a group of chunks, 288 KiB for 192 columns
constexpr std::int64_t kStripePanels = 128;  // columns whose sums are kept in scratch at a time
constexpr std::int64_t kUnitBytes = 4;

// What depends on the types alone.
struct Sizes {
  std::int64_t chunk_units;
  std::int64_t group_chunks;
  std::int64_t column_step;  // units between two k in a panel of A by column
  std::int64_t tile_units;   // of one packed tile of A: rows × one chunk
  std::int64_t panel_units;  // of one packed panel of B: one chunk

  explicit Sizes(const ProductKernels& kernels)
      : chunk_units(kMatmulChunk / kernels.packing.unit_elements),
        // Floats fill the cache with one chunk.
        group_chunks(kernels.packing.unit_elements == 1 ? 1 : kGroupUnits / chunk_units),
        column_step(round_up(kernels.size.max_rows, 4)),
        tile_units(
            round_up(std::max(kernels.size.max_rows * kernels.packing.row_stride, column_step * chunk_units), 16)),
        panel_units(chunk_units * kernels.size.panel_columns) {}
};

// K of one block, whole groups: packed A shall stay well below the third-level cache, and shorter blocks cost barriers.
std::int64_t depth_block(const ProductKernels& kernels, std::int64_t m) {
  const std::int64_t chunks = kernels.packing.unit_elements * kRowBlock / std::max<std::int64_t>(m, 1);
  const std::int64_t group = Sizes(kernels).group_chunks;
  return kMatmulChunk * group * std::clamp<std::int64_t>(chunks / group, 1, kMaxDepthChunks / group);
}

// Sums that outlive a group of chunks and cannot lie in C.
bool keeps_sums(const Sizes& sizes, DType result, std::int64_t k) {
  return result != DType::float32 && k > sizes.group_chunks * kMatmulChunk;
}

// Where the float32 sums of a block's rows are; no data: in each tile's own memory.
struct KeptSums {
  float* data = nullptr;
  std::int64_t step = 0;
};

// Tiles read A where it is: rows of whole units that do not all fall on one set of the first-level cache.
bool reads_in_place(const MatmulProblem& p, const ProductKernels& kernels) {
  constexpr std::int64_t kSameSet = 4096;
  return kernels.in_pairs && !p.transpose_a && p.k % 2 == 0 && p.a_step % kUnitBytes == 0 && p.a_step % kSameSet != 0 &&
         reinterpret_cast<std::uintptr_t>(p.a) % kUnitBytes == 0;
}

// One block of rows and range of K.
class Block {
 public:
  /// `exec`: null on one thread. `sums`: of row rows.begin.
  Block(Executor* exec, const MatmulProblem& problem, const ProductKernels& kernels, float* scratch, KeptSums sums,
        Range rows, Range depth)
      : exec_(exec),
        p_(problem),
        kernels_(kernels),
        packing_(kernels.packing),
        sizes_(kernels),
        width_(kernels.size.panel_columns),
        element_(kernels.packing.element_bytes),
        sums_(sums),
        rows_(rows),
        depth_(depth),
        tiles_(ceil_div(rows.end - rows.begin, kernels.size.max_rows)),
        chunks_(ceil_div(depth.end - depth.begin, kMatmulChunk)),
        group_chunks_(std::min(sizes_.group_chunks, chunks_)),
        in_place_(reads_in_place(problem, kernels)),
        cut_(kernels.size, problem.n, tiles_, num_threads()),
        packed_a_(scratch),
        packed_b_(scratch + (in_place_ ? 0 : tiles_ * chunks_ * sizes_.tile_units)) {}

  void run() {
    const std::int64_t groups = ceil_div(tiles_, kPackedTiles);
    const std::int64_t a_tasks = in_place_ ? 0 : groups * chunks_, b_tasks = cut_.shared ? cut_.panels * chunks_ : 0;
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
  Range columns_of(Range panels) const { return {panels.begin * width_, std::min(p_.n, panels.end * width_)}; }
  const std::byte* a_at(std::int64_t row, std::int64_t k) const {
    return p_.transpose_a ? p_.a + k * p_.a_step + row * element_ : p_.a + row * p_.a_step + k * element_;
  }
  const std::byte* b_at(std::int64_t k, std::int64_t column) const {
    return p_.transpose_b ? p_.b + column * p_.b_step + k * element_ : p_.b + k * p_.b_step + column * element_;
  }
  float* packed_tile(std::int64_t tile, std::int64_t chunk) const {
    return packed_a_ + (tile * chunks_ + chunk) * sizes_.tile_units;
  }
  float* shared_panel(std::int64_t panel, std::int64_t chunk) const {
    return packed_b_ + (panel * chunks_ + chunk) * sizes_.panel_units;
  }

  // Tiles [tiles.begin, tiles.end) of one chunk.
  void pack_a(Range tiles, std::int64_t chunk) const {
    const Range depth = chunk_depth(chunk);
    if (!p_.transpose_a) {
      for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        const Range rows = tile_rows(tile);
        packing_.copy_rows(a_at(rows.begin, depth.begin), p_.a_step, rows.end - rows.begin, depth.end - depth.begin,
                           packed_tile(tile, chunk));
      }
      return;
    }
    const Range rows{tile_rows(tiles.begin).begin, tile_rows(tiles.end - 1).end};
    const std::int64_t height = tile_rows(tiles.begin).end - rows.begin, count = tiles.end - tiles.begin;
    const std::int64_t low = height * count - (rows.end - rows.begin);
    packing_.pack_columns(a_at(rows.begin, depth.begin), p_.a_step, {height, count - low, low}, depth.end - depth.begin,
                          packed_tile(tiles.begin, chunk), sizes_.column_step, chunks_ * sizes_.tile_units);
  }

  void pack_shared(std::int64_t panel, std::int64_t chunk) const {
    pack_b({panel, panel + 1}, chunk, shared_panel(panel, chunk), 0);
  }

  // Panels [panels.begin, panels.end) of one chunk, panels_step units apart.
  void pack_b(Range panels, std::int64_t chunk, float* to, std::int64_t panels_step) const {
    const Range depth = chunk_depth(chunk), columns = columns_of(panels);
    const std::int64_t count = depth.end - depth.begin;
    if (!p_.transpose_b) {
      packing_.pack_rows(b_at(depth.begin, columns.begin), p_.b_step, columns.end - columns.begin, count, to,
                         panels_step);
      return;
    }
    for (std::int64_t j = columns.begin; j < columns.end; j += width_, to += panels_step)
      packing_.pack_transposed(b_at(depth.begin, j), p_.b_step, std::min(width_, columns.end - j), count, to);
  }

  void compute(Range tiles, std::int64_t column_task, int worker) const {
    const Range panels = cut_.columns(column_task);
    const std::int64_t num_tiles = (tiles.end - tiles.begin) * (panels.end - panels.begin);
    const std::int64_t panels_step = (cut_.shared ? chunks_ : group_chunks_) * sizes_.panel_units;
    float* own = packed_b_ + worker * kMaxTaskPanels * group_chunks_ * sizes_.panel_units;
    for (std::int64_t chunk = 0; chunk < chunks_; chunk += group_chunks_) {
      const Range group{chunk, std::min(chunks_, chunk + group_chunks_)};
      if (!cut_.shared)
        for (std::int64_t c = group.begin; c < group.end; ++c)
          pack_b(panels, c, own + (c - group.begin) * sizes_.panel_units, panels_step);
      const float* b = cut_.shared ? shared_panel(panels.begin, chunk) : own;
      LineWalk ahead = next_source(column_task, group.end);
      const std::int64_t lines = ceil_div(ahead.count(), num_tiles * (group.end - group.begin));
      for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        LineWalk next_tile = tile + 1 < tiles.end ? a_lines(tile + 1, group.begin) : a_lines(tiles.begin, group.end);
        const std::int64_t tile_lines =
            ceil_div(next_tile.count(), (panels.end - panels.begin) * (group.end - group.begin));
        for (std::int64_t panel = panels.begin; panel < panels.end; ++panel)
          compute_tile(tile, group, panel, b + (panel - panels.begin) * panels_step,
                       {&next_tile, tile_lines, &ahead, lines});
      }
    }
  }

  // A tile of the group of chunks from `chunk` on: the first panel would wait for it, its rows are too many streams for
  // the hardware to follow.
  LineWalk a_lines(std::int64_t tile, std::int64_t chunk) const {
    if (chunk >= chunks_) return {};
    if (in_place_) {
      const Range rows = tile_rows(tile);
      const std::int64_t begin = chunk_depth(chunk).begin;
      const std::int64_t end = std::min(depth_.end, begin + group_chunks_ * kMatmulChunk);
      return {a_at(rows.begin, begin), p_.a_step, rows.end - rows.begin, (end - begin) * element_};
    }
    const std::int64_t units = std::min(group_chunks_, chunks_ - chunk) * sizes_.tile_units;
    return {reinterpret_cast<const std::byte*>(packed_tile(tile, chunk)), 0, 1, units * kUnitBytes};
  }

  // What this thread will probably pack next: the chunks from `chunk` on of the same columns, or the first of those of
  // the task that it gets if all threads are equally fast.
  LineWalk next_source(std::int64_t column_task, std::int64_t chunk) const {
    if (cut_.shared) return {};
    std::int64_t begin = depth_.begin + chunk * kMatmulChunk, end = depth_.end;
    if (chunk >= chunks_) {
      column_task += num_threads();
      if (column_task < cut_.column_tasks) {
        begin = depth_.begin;
      } else {
        column_task %= cut_.column_tasks;
        begin = depth_.end;
        end = p_.k;
      }
    }
    const std::int64_t count = std::min(end, begin + group_chunks_ * kMatmulChunk) - begin;
    const Range columns = columns_of(cut_.columns(column_task));
    const std::int64_t width = columns.end - columns.begin;
    const std::byte* source = b_at(begin, columns.begin);
    if (p_.transpose_b) return {source, p_.b_step, width, count * element_};
    return {source, p_.b_step, count, width * element_};
  }

  // What is fetched while a tile runs, lines per chunk.
  struct Ahead {
    LineWalk* a;
    std::int64_t a_lines;
    LineWalk* b;
    std::int64_t b_lines;
  };

  // One tile over a group of chunks; `b`: its panel of the first of them.
  void compute_tile(std::int64_t tile, Range group, std::int64_t panel, const float* b, const Ahead& ahead) const {
    alignas(64) float own[kMaxTileRows * kMaxPanelColumns];
    const Range rows = tile_rows(tile), columns = columns_of({panel, panel + 1});
    const Range last = chunk_depth(group.end - 1);
    const std::int64_t unit = packing_.unit_elements;
    std::byte* const c = p_.c + rows.begin * p_.c_step;
    const bool single = p_.result == DType::float32;
    float* sums = own;
    std::int64_t sums_step = kMaxPanelColumns;
    if (single) {
      sums = reinterpret_cast<float*>(c) + columns.begin;
      sums_step = p_.c_step / kUnitBytes;
    } else if (sums_.data != nullptr) {
      sums = sums_.data + (rows.begin - rows_.begin) * sums_.step + columns.begin;
      sums_step = sums_.step;
    }
    // A gradient is seldom in a cache, and pairs are done with a tile before it comes.
    if (single && kernels_.in_pairs)
      for (std::int64_t i = 0; i < rows.end - rows.begin; ++i)
        for (std::int64_t j = 0; j < columns.end - columns.begin; j += 16)
          __builtin_prefetch(sums + i * sums_step + j, 1, 3);
    kernels_.run({in_place_ ? reinterpret_cast<const float*>(a_at(rows.begin, chunk_depth(group.begin).begin))
                            : packed_tile(tile, group.begin),
                  in_place_ ? sizes_.chunk_units : sizes_.tile_units,
                  !p_.transpose_a,
                  p_.transpose_a ? sizes_.column_step
                  : in_place_    ? p_.a_step / kUnitBytes
                                 : packing_.row_stride,
                  b,
                  sizes_.panel_units,
                  rows.end - rows.begin,
                  columns.end - columns.begin,
                  group.end - group.begin,
                  sizes_.chunk_units,
                  round_up(last.end - last.begin, packing_.padded_to) / unit,
                  sums,
                  sums_step,
                  p_.accumulate || chunk_depth(group.begin).begin > 0,
                  !single && last.end == p_.k ? c + columns.begin * element_ : nullptr,
                  single ? 0 : p_.c_step,
                  ahead.a,
                  ahead.b,
                  ahead.a_lines,
                  ahead.b_lines});
  }

  Executor* exec_;
  const MatmulProblem& p_;
  const ProductKernels& kernels_;
  const Packing& packing_;
  Sizes sizes_;
  std::int64_t width_, element_;
  KeptSums sums_;
  Range rows_, depth_;
  std::int64_t tiles_, chunks_, group_chunks_;
  bool in_place_;  // A is not packed
  Cut cut_;
  float* packed_a_;
  float* packed_b_;
};

// Rows [rows) and panels of columns [panels) of a product.
MatmulProblem part_of(const MatmulProblem& p, const ProductKernels& kernels, Range rows, Range panels) {
  MatmulProblem q = p;
  const std::int64_t width = kernels.size.panel_columns, element = kernels.packing.element_bytes;
  const std::int64_t column = panels.begin * width;
  q.m = rows.end - rows.begin;
  q.n = std::min(p.n, panels.end * width) - column;
  q.a += rows.begin * (p.transpose_a ? element : p.a_step);
  q.b += column * (p.transpose_b ? p.b_step : element);
  q.c += rows.begin * p.c_step + column * dtype_size(p.result);
  return q;
}

// On how many stripes of columns the blocks of a product go: so many that their kept sums are no large memory.
std::int64_t num_stripes(const ProductKernels& kernels, DType result, std::int64_t n, std::int64_t k) {
  if (!keeps_sums(Sizes(kernels), result, k)) return 1;
  return ceil_div(ceil_div(n, kernels.size.panel_columns), kStripePanels);
}

// Units of the scratch of a block: packed A (where it is packed) and B, not the kept sums.
std::int64_t block_scratch(const ProductKernels& kernels, bool packs_a, std::int64_t m, std::int64_t n, std::int64_t k,
                           std::int64_t num_threads) {
  const Sizes sizes(kernels);
  const std::int64_t chunks = ceil_div(std::min(k, depth_block(kernels, m)), kMatmulChunk);
  const std::int64_t tiles = ceil_div(std::min(m, kRowBlock), kernels.size.max_rows);
  const Cut cut(kernels.size, n, tiles, num_threads);
  const std::int64_t panels =
      cut.shared ? chunks * cut.panels : num_threads * kMaxTaskPanels * std::min(chunks, sizes.group_chunks);
  return (packs_a ? tiles * chunks * sizes.tile_units : 0) + panels * sizes.panel_units;
}

// Units of the scratch of compute_blocks(): the kept sums behind what the blocks use.
struct BlocksScratch {
  std::int64_t blocks, sums;
  BlocksScratch(const ProductKernels& kernels, bool packs_a, DType result, std::int64_t m, std::int64_t n,
                std::int64_t k, std::int64_t num_threads) {
    const std::int64_t stripes = num_stripes(kernels, result, n, k), width = kernels.size.panel_columns;
    const std::int64_t panels = ceil_div(n, width), wide = std::min(n, ceil_div(panels, stripes) * width);
    // Stripes of two widths where they are not equal; the narrow one may be packed by all threads together.
    const std::int64_t narrow = std::min(n, std::max<std::int64_t>(1, panels / stripes) * width);
    blocks = round_up(std::max(block_scratch(kernels, packs_a, m, wide, k, num_threads),
                               block_scratch(kernels, packs_a, m, narrow, k, num_threads)),
                      16);
    sums = keeps_sums(Sizes(kernels), result, k) ? std::min(m, kRowBlock) * round_up(wide, 16) : 0;
  }
  std::int64_t total() const { return blocks + sums; }
};

/// On the threads of `exec` together, or on the calling thread where it is null.
void compute_blocks(Executor* exec, const MatmulProblem& problem, const ProductKernels& kernels, float* scratch) {
  const int threads = exec == nullptr ? 1 : exec->num_threads();
  const BlocksScratch sizes(kernels, !reads_in_place(problem, kernels), problem.result, problem.m, problem.n, problem.k,
                            threads);
  const std::int64_t stripes = num_stripes(kernels, problem.result, problem.n, problem.k);
  const std::int64_t panels = ceil_div(problem.n, kernels.size.panel_columns);
  const std::int64_t row_blocks = ceil_div(problem.m, kRowBlock);
  const std::int64_t step = depth_block(kernels, problem.m);
  for (std::int64_t stripe = 0; stripe < stripes; ++stripe) {
    const MatmulProblem p = part_of(problem, kernels, {0, problem.m}, part(panels, stripes, stripe));
    const KeptSums sums = sizes.sums == 0 ? KeptSums{} : KeptSums{scratch + sizes.blocks, round_up(p.n, 16)};
    for (std::int64_t block = 0; block < row_blocks; ++block)
      for (std::int64_t k = 0; k < p.k; k += step)
        Block(exec, p, kernels, scratch, sums, part(p.m, row_blocks, block), {k, std::min(p.k, k + step)}).run();
  }
}

/// Units of the scratch of one task of the grid.
std::int64_t task_scratch(const ProductKernels& kernels, bool packs_a, const Grid& grid, DType result, std::int64_t m,
                          std::int64_t n, std::int64_t k) {
  // Smaller parts may have a deeper block: the largest of both is enough.
  const std::int64_t high = ceil_div(m, grid.rows), width = ceil_div(n, grid.columns) + kernels.size.panel_columns;
  return round_up(std::max(BlocksScratch(kernels, packs_a, result, high, width, k, 1).total(),
                           BlocksScratch(kernels, packs_a, result, m / grid.rows, width, k, 1).total()),
                  16);
}

void clear(const MatmulProblem& p) {
  for (std::int64_t i = 0; i < p.m; ++i)
    std::memset(p.c + i * p.c_step, 0, static_cast<std::size_t>(p.n * dtype_size(p.result)));
}

bool is_small(std::int64_t m, std::int64_t n, std::int64_t k) { return 2 * m * n * k <= kSmallProduct; }
}  // namespace

std::int64_t matmul_scratch_bytes(std::int64_t m, std::int64_t n, std::int64_t k, DType operands, DType result,
                                  int num_threads) {
  const ProductKernels kernels = product_kernels(operands);
  const std::int64_t blocks =
      BlocksScratch(kernels, true, result, m, n, k, is_small(m, n, k) ? 1 : num_threads).total();
  std::int64_t units = 0;
  for (const bool packs_a : {true, false}) {
    const Grid grid(kernels.size, m, n, k, packs_a, num_threads);
    units = std::max(units, grid.used ? num_threads * task_scratch(kernels, packs_a, grid, result, m, n, k) : blocks);
    if (!kernels.in_pairs) break;
  }
  return units * kUnitBytes;
}

void matmul(Executor& exec, const MatmulProblem& problem, std::byte* scratch) noexcept {
  const std::int64_t m = problem.m, n = problem.n, k = problem.k;
  if (k == 0) {
    if (!problem.accumulate) clear(problem);
    return;
  }
  const ProductKernels kernels = product_kernels(problem.operands);
  float* const units = reinterpret_cast<float*>(scratch);
  const bool packs_a = !reads_in_place(problem, kernels);
  const Grid grid(kernels.size, m, n, k, packs_a, exec.num_threads());
  if (!grid.used) {
    const bool alone = exec.num_threads() == 1 || is_small(m, n, k);
    return compute_blocks(alone ? nullptr : &exec, problem, kernels, units);
  }
  const std::int64_t panels = ceil_div(n, kernels.size.panel_columns);
  const std::int64_t own = task_scratch(kernels, packs_a, grid, problem.result, m, n, k);
  exec.parallel_for(grid.rows * grid.columns, [&](std::int64_t task, int worker) {
    const Range rows = part(m, grid.rows, task % grid.rows), columns = part(panels, grid.columns, task / grid.rows);
    compute_blocks(nullptr, part_of(problem, kernels, rows, columns), kernels, units + worker * own);
  });
}

}  // namespace megatron::kernels::cpu
