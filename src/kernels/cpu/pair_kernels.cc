#include "kernels/cpu/pair_kernels.h"

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/float16.h"
#include "base/rng.h"

// Every function that uses vectors names its instruction sets: the rest of the program runs without them.
#define MEGATRON_PAIRS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace megatron::kernels::cpu {
namespace {

constexpr int kRows = 14, kVectors = 2, kLanes = 16;
constexpr std::int64_t kPanel = kVectors * kLanes;
constexpr std::int64_t kRowStride = 208;  // a chunk of 192 units and a line
constexpr std::int64_t kVectorElements = 2 * kLanes;

// Operands of a tile over one chunk, and what is fetched on the way.
struct TileStart {
  const float* a;
  std::int64_t a_step;
  const float* b;
  std::int64_t depth;
  std::array<LineWalk*, 2> ahead;
  std::array<std::int64_t, 2> lines;
};

// Where its sums go: as float32, or rounded.
struct TileEnd {
  float* sums;
  std::int64_t sums_step;
  bool add;
  std::byte* rounded;  // or null
  std::int64_t rounded_step, columns;
};

// False, and nothing stored, if any sum is subnormal: the instruction that rounds would make it zero.
template <int kHeight, int kWidth>
MEGATRON_PAIRS __attribute__((always_inline)) inline bool store_rounded(const __m512 (&sums)[kHeight][kWidth],
                                                                        const TileEnd& end) {
  constexpr int kSubnormal = 0x20;
  __mmask16 subnormal = 0;
#pragma GCC unroll 16
  for (int i = 0; i < kHeight; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < kWidth; ++j) subnormal = _kor_mask16(subnormal, _mm512_fpclass_ps_mask(sums[i][j], kSubnormal));
  if (!_kortestz_mask16_u8(subnormal, subnormal)) return false;
  const auto valid = static_cast<__mmask32>((std::uint64_t{1} << end.columns) - 1);
  std::byte* to = end.rounded;
#pragma GCC unroll 16
  for (int i = 0; i < kHeight; ++i, to += end.rounded_step) {
    const auto row = (__m512i)_mm512_cvtne2ps_pbh(kWidth == 2 ? sums[i][kWidth - 1] : _mm512_setzero_ps(), sums[i][0]);
    if (end.columns == kPanel)
      _mm512_storeu_si512(to, row);
    else
      _mm512_mask_storeu_epi16(to, valid, row);
  }
  return true;
}

// False: the sums are stored, and wait for being rounded.
template <int kHeight, int kWidth, bool kByRow>
MEGATRON_PAIRS bool tile(const TileStart& start, const TileEnd& end) {
  __m512 sums[kHeight][kWidth];
#pragma GCC unroll 16
  for (int i = 0; i < kHeight; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < kWidth; ++j) sums[i][j] = _mm512_setzero_ps();
  // Rows of A lie at bases[i / 3] + i % 3 · step: what an address can name.
  constexpr int kBases = kByRow ? (kHeight + 2) / 3 : 1;
  const float* bases[kBases];
  const std::int64_t step = start.a_step;
#pragma GCC unroll 16
  for (int i = 0; i < kBases; ++i) bases[i] = start.a + 3 * i * step;
  const float* b = start.b;
  const auto add_unit = [&]() __attribute__((always_inline)) MEGATRON_PAIRS {
    __m512bh columns[kWidth];
#pragma GCC unroll 16
    for (int j = 0; j < kWidth; ++j) columns[j] = (__m512bh)_mm512_loadu_ps(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kHeight; ++i) {
      const __m512bh factor = (__m512bh)_mm512_set1_ps(kByRow ? bases[i / 3][i % 3 * step] : bases[0][i]);
#pragma GCC unroll 16
      for (int j = 0; j < kWidth; ++j) sums[i][j] = _mm512_dpbf16_ps(sums[i][j], factor, columns[j]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kBases; ++i) bases[i] += kByRow ? 1 : step;
    b += kPanel;
  };
  std::int64_t units = start.depth;
  // Fetched in between, where loads have time; all at once they would wait for each other.
  for (std::size_t s = 0; s < 2; ++s) {
    LineWalk walk = *start.ahead[s];
    std::int64_t lines = std::min({start.lines[s], walk.count(), units});
    units -= lines;
    for (; lines > 0; --lines) {
      __builtin_prefetch(walk.next(), 0, 2);
      add_unit();
    }
    *start.ahead[s] = walk;
  }
  for (; units > 0; --units) add_unit();
  float* const c = end.sums;
  const std::int64_t c_step = end.sums_step;
  // All loads before the first store: rows of C are often a multiple of 4 KiB apart.
  if (end.add) {
#pragma GCC unroll 16
    for (int i = 0; i < kHeight; ++i)
#pragma GCC unroll 16
      for (int j = 0; j < kWidth; ++j)
        sums[i][j] = _mm512_add_ps(_mm512_loadu_ps(c + i * c_step + j * kLanes), sums[i][j]);
  }
  if (end.rounded != nullptr && store_rounded(sums, end)) return true;
#pragma GCC unroll 16
  for (int i = 0; i < kHeight; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < kWidth; ++j) _mm512_storeu_ps(c + i * c_step + j * kLanes, sums[i][j]);
  return end.rounded == nullptr;
}

// += or = the finished sums of a chunk, at the right edge of C.
void put_edge(const float* edge, std::int64_t rows, std::int64_t columns, float* c, std::int64_t c_step, bool add) {
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const float sum = edge[i * kPanel + j];
      c[i * c_step + j] = add ? c[i * c_step + j] + sum : sum;
    }
}

MEGATRON_PAIRS inline __m512i load_first(const std::byte* from, std::int64_t elements) {
  return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((std::uint64_t{1} << elements) - 1), from);
}

MEGATRON_PAIRS void copy_rows(const std::byte* a, std::int64_t a_step, std::int64_t rows, std::int64_t depth,
                              float* tile) {
  constexpr std::int64_t kAhead = 3;  // rows: a row is too short for the hardware to find its successor
  for (std::int64_t i = 0; i < rows; ++i, a += a_step, tile += kRowStride) {
    for (std::int64_t k = 0; k < depth; k += kVectorElements) __builtin_prefetch(a + kAhead * a_step + 2 * k);
    std::int64_t k = 0;
    for (; k + kVectorElements <= depth; k += kVectorElements)
      _mm512_storeu_si512(tile + k / 2, _mm512_loadu_si512(a + 2 * k));
    if (k < depth) _mm512_storeu_si512(tile + k / 2, load_first(a + 2 * k, depth - k));
  }
}

// Units 0 to 15, and 16 to 31, of two rows of 32 elements: (even row, odd row).
struct Interleaved {
  __m512i low, high;
};
MEGATRON_PAIRS inline Interleaved interleave(__m512i even, __m512i odd) {
  alignas(64) static constexpr std::uint16_t kLow[] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                       8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i low = _mm512_load_si512(kLow), high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  return {_mm512_permutex2var_epi16(even, low, odd), _mm512_permutex2var_epi16(even, high, odd)};
}

MEGATRON_PAIRS void pack_columns(const std::byte* a, std::int64_t a_step, TileRows rows, std::int64_t depth,
                                 float* tile, std::int64_t tile_step, std::int64_t tiles_step) {
  constexpr std::int64_t kAhead = 16;
  const auto tall = static_cast<__mmask16>((1U << rows.height) - 1), low = static_cast<__mmask16>(tall >> 1);
  const std::int64_t tiles = rows.tall + rows.low;
  for (std::int64_t k = 0; k < depth; k += 2, a += 2 * a_step, tile += tile_step) {
    // Beyond an odd depth: zeros.
    const __mmask16 has_odd = k + 1 < depth ? 0xFFFF : 0;
    const std::byte *even = a, *odd = has_odd != 0 ? a + a_step : a;
    float* to = tile;
    for (std::int64_t t = 0; t < tiles; ++t, to += tiles_step) {
      const __mmask16 valid = t < rows.tall ? tall : low;
      const std::int64_t height = t < rows.tall ? rows.height : rows.height - 1;
      __builtin_prefetch(even + kAhead * a_step);
      __builtin_prefetch(odd + kAhead * a_step);
      const __m256i first = _mm256_maskz_loadu_epi16(valid, even);
      const __m256i second = _mm256_maskz_loadu_epi16(valid & has_odd, odd);
      _mm512_storeu_si512(to, interleave(_mm512_castsi256_si512(first), _mm512_castsi256_si512(second)).low);
      even += 2 * height;
      odd += 2 * height;
    }
  }
}

MEGATRON_PAIRS void pack_rows(const std::byte* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth,
                              float* panels, std::int64_t panels_step) {
  constexpr std::int64_t kAhead = 8;  // rows: each lies on a page of its own, where no hardware prefetcher follows
  const std::int64_t full = columns / kPanel, rest = columns % kPanel;
  for (std::int64_t k = 0; k < depth; k += 2, b += 2 * b_step) {
    const bool has_odd = k + 1 < depth;
    const std::byte *even = b, *odd = has_odd ? b + b_step : b;
    float* to = panels + k / 2 * kPanel;
    if (k + kAhead < depth)
      for (std::int64_t j = 0; j < columns; j += kVectorElements) {
        __builtin_prefetch(even + kAhead * b_step + 2 * j);
        __builtin_prefetch(odd + kAhead * b_step + 2 * j);
      }
    const auto put = [&](__m512i first, __m512i second) MEGATRON_PAIRS {
      const Interleaved units = interleave(first, has_odd ? second : _mm512_setzero_si512());
      _mm512_storeu_si512(to, units.low);
      _mm512_storeu_si512(to + kLanes, units.high);
    };
    for (std::int64_t panel = 0; panel < full; ++panel, even += 2 * kPanel, odd += 2 * kPanel, to += panels_step)
      put(_mm512_loadu_si512(even), _mm512_loadu_si512(odd));
    if (rest > 0) put(load_first(even, rest), load_first(odd, rest));
  }
}

// Four units of eight rows.
MEGATRON_PAIRS inline void transpose_block(const std::byte* b, std::int64_t b_step, float* to) {
  const auto rows = [&](std::int64_t r) MEGATRON_PAIRS {
    const __m128 low = _mm_loadu_ps(reinterpret_cast<const float*>(b + r * b_step));
    const __m128 high = _mm_loadu_ps(reinterpret_cast<const float*>(b + (r + 4) * b_step));
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
  };
  const __m256 r0 = rows(0), r1 = rows(1), r2 = rows(2), r3 = rows(3);
  const __m256d low01 = _mm256_castps_pd(_mm256_unpacklo_ps(r0, r1)),
                high01 = _mm256_castps_pd(_mm256_unpackhi_ps(r0, r1));
  const __m256d low23 = _mm256_castps_pd(_mm256_unpacklo_ps(r2, r3)),
                high23 = _mm256_castps_pd(_mm256_unpackhi_ps(r2, r3));
  _mm256_storeu_ps(to, _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23)));
  _mm256_storeu_ps(to + kPanel, _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23)));
  _mm256_storeu_ps(to + 2 * kPanel, _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23)));
  _mm256_storeu_ps(to + 3 * kPanel, _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23)));
}

// Units [units) of columns [columns), one by one.
void pack_transposed_plain(const std::byte* b, std::int64_t b_step, Range columns, Range units, std::int64_t depth,
                           float* panel) {
  for (std::int64_t u = units.begin; u < units.end; ++u)
    for (std::int64_t j = columns.begin; j < columns.end; ++j) {
      std::uint16_t pair[2] = {0, 0};
      std::memcpy(pair, b + j * b_step + 4 * u, 2 * u + 1 < depth ? 4 : 2);
      std::memcpy(panel + u * kPanel + j, pair, 4);
    }
}

MEGATRON_PAIRS void pack_transposed(const std::byte* b, std::int64_t b_step, std::int64_t columns, std::int64_t depth,
                                    float* panel) {
  constexpr std::int64_t kLine = 16;       // units of a cache line: read at one go
  constexpr std::int64_t kStretch = 96;    // of units: this part of the panel stays in L1 while its columns are filled
  constexpr std::int64_t kTransposed = 8;  // columns: their cache lines fit the ways of one cache set
  const std::int64_t units = (depth + 1) / 2, blocked_units = depth / 2 / kLine * kLine;
  const std::int64_t blocked_columns = columns / kTransposed * kTransposed;
  for (std::int64_t first = 0; first < blocked_units; first += kStretch)
    for (std::int64_t j = 0; j < blocked_columns; j += kTransposed)
      for (std::int64_t u = first; u < std::min(blocked_units, first + kStretch); u += 4)
        transpose_block(b + j * b_step + 4 * u, b_step, panel + u * kPanel + j);
  pack_transposed_plain(b, b_step, {0, blocked_columns}, {blocked_units, units}, depth, panel);
  pack_transposed_plain(b, b_step, {blocked_columns, columns}, {0, units}, depth, panel);
  if (columns == kPanel) return;
  for (std::int64_t u = 0; u < units; ++u) std::fill(panel + u * kPanel + columns, panel + (u + 1) * kPanel, 0.0F);
}

using TileFunction = bool (*)(const TileStart& start, const TileEnd& end);
using TileTable = std::array<std::array<TileFunction, kVectors>, kRows>;
template <bool kByRow, std::size_t... kHeights>
constexpr TileTable table(std::index_sequence<kHeights...>) {
  return {{{&tile<static_cast<int>(kHeights) + 1, 1, kByRow>, &tile<static_cast<int>(kHeights) + 1, 2, kByRow>}...}};
}

/// One lane of the instruction.
class Step {
 public:
  static float described(float sum, const BFloat16 a[2], const BFloat16 b[2]) {
    return rounded(flushed(a[0]), flushed(b[0]), rounded(flushed(a[1]), flushed(b[1]), flushed(sum)));
  }

 private:
  static float flushed(float x) { return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }
  static float rounded(float a, float b, float c) {
    const float sum = flushed(std::fma(a, b, c));
    // Rounded as a subnormal the sum may have come up to 2⁻¹²⁶ from below.
    const bool below =
        std::abs(sum) == 0x1p-126F && std::abs(std::fma(a * 0x1p32F, b * 0x1p32F, c * 0x1p64F)) < 0x1p-62F;
    return below ? std::copysign(0.0F, sum) : sum;
  }
};

MEGATRON_PAIRS void run_conversion(const float* sums, BFloat16* results) {
  const __m512 zero = _mm512_setzero_ps();
  _mm512_mask_storeu_epi16(results, 0xFFFF, (__m512i)_mm512_cvtne2ps_pbh(zero, _mm512_loadu_ps(sums)));
}

// But for subnormals.
bool converts_as_described(const float* sums) {
  BFloat16 rounded[kLanes];
  run_conversion(sums, rounded);
  for (int i = 0; i < kLanes; ++i)
    if (std::fpclassify(sums[i]) != FP_SUBNORMAL && rounded[i].bits != BFloat16(sums[i]).bits) return false;
  return true;
}

MEGATRON_PAIRS void run_instruction(const float* sums, const BFloat16* a, const BFloat16* b, float* results) {
  const __m512 sum =
      _mm512_dpbf16_ps(_mm512_loadu_ps(sums), (__m512bh)_mm512_loadu_si512(a), (__m512bh)_mm512_loadu_si512(b));
  _mm512_storeu_ps(results, sum);
}

// Numbers of 16 random bits each whose exponents lie in [first, first + count).
std::uint16_t with_exponent(std::uint32_t bits, std::uint32_t first, std::uint32_t count) {
  return static_cast<std::uint16_t>((bits & 0x807FU) | ((first + (bits >> 16) % count) << 7));
}

bool check_instruction() {
  // Exponents of a and b, and of the sum: ordinary ones, sums next to the subnormals, subnormal operands, all there
  // are.
  struct Kind {
    std::uint32_t operands, num_operands, sums, num_sums;
  };
  constexpr Kind kKinds[] = {{120, 10, 117, 16}, {40, 25, 0, 6}, {50, 5, 1, 1}, {0, 3, 0, 200}, {0, 256, 0, 256}};
  std::uint32_t count = 0;
  for (const Kind& kind : kKinds)
    for (int round = 0; round < 256; ++round) {
      float sums[kLanes], results[kLanes];
      BFloat16 a[kVectorElements], b[kVectorElements];
      for (int i = 0; i < kLanes; ++i) {
        const auto words = philox4x32({7, 16}, {count++, 0, 0, 0}), more = philox4x32({7, 17}, {count, 0, 0, 0});
        for (int half = 0; half < 2; ++half) {
          const auto at = static_cast<std::size_t>(half);
          a[2 * i + half] = BFloat16::from_bits(with_exponent(words[at], kind.operands, kind.num_operands));
          b[2 * i + half] = BFloat16::from_bits(with_exponent(words[at + 2], kind.operands, kind.num_operands));
        }
        const std::uint32_t upper = with_exponent(more[0], kind.sums, kind.num_sums);
        sums[i] = std::bit_cast<float>((upper << 16) | (more[1] % 3 == 0 ? 0 : more[2] >> 16));
      }
      if (!converts_as_described(sums)) return false;
      run_instruction(sums, a, b, results);
      for (int i = 0; i < kLanes; ++i) {
        const float expected = Step::described(sums[i], a + 2 * i, b + 2 * i);
        const bool same = std::bit_cast<std::uint32_t>(results[i]) == std::bit_cast<std::uint32_t>(expected);
        if (!same && !(std::isnan(results[i]) && std::isnan(expected))) return false;
      }
    }
  return true;
}

}  // namespace

bool has_pair_instruction() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bf16");
}

bool pair_instruction_rounds_as_described() {
  static const bool right = check_instruction();
  return right;
}

TileSize pair_tile_size() { return {kRows, kLanes, kPanel}; }

bool run_pair_tile(const TileRun& run) {
  static constexpr TileTable by_row = table<true>(std::make_index_sequence<kRows>()),
                             by_column = table<false>(std::make_index_sequence<kRows>());
  const std::size_t vectors = run.columns <= kLanes ? 1 : 2;
  const TileFunction function =
      (run.a_by_row ? by_row : by_column)[static_cast<std::size_t>(run.rows - 1)][vectors - 1];
  // A full vector would touch what lies beyond.
  const bool at_edge = run.rounded_step == 0 && run.columns % kLanes != 0;
  alignas(64) float edge[kRows * kPanel];
  TileStart start{
      run.a, run.a_step, run.b, run.chunk_units, {run.next_a, run.next_b}, {run.next_a_lines, run.next_b_lines}};
  bool rounded = true;
  for (std::int64_t chunk = 0; chunk < run.chunks; ++chunk, start.a += run.a_chunk_step, start.b += run.b_chunk_step) {
    const bool is_last = chunk + 1 == run.chunks, add = run.add || chunk > 0;
    if (is_last) start.depth = run.last_units;
    if (at_edge) {
      function(start, {edge, kPanel, false, nullptr, 0, run.columns});
      put_edge(edge, run.rows, run.columns, run.sums, run.sums_step, add);
    } else {
      rounded = function(
          start, {run.sums, run.sums_step, add, is_last ? run.rounded : nullptr, run.rounded_step, run.columns});
    }
  }
  return rounded;
}

const Packing& pair_packing() {
  static constexpr Packing packing = {2, 2, 2, kRowStride, &copy_rows, &pack_columns, &pack_transposed, &pack_rows};
  return packing;
}

}  // namespace megatron::kernels::cpu

#else

namespace megatron::kernels::cpu {

bool has_pair_instruction() { return false; }
bool pair_instruction_rounds_as_described() { return false; }
TileSize pair_tile_size() { throw Error("no instruction for pairs of bfloat16"); }
const Packing& pair_packing() { throw Error("no instruction for pairs of bfloat16"); }
bool run_pair_tile(const TileRun&) { throw Error("no instruction for pairs of bfloat16"); }

}  // namespace megatron::kernels::cpu

#endif
