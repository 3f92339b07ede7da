#include "kernels/cpu/pair_rows.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>

// Every function that uses vectors names its instruction sets: the rest of the program runs without them. Shifts with
// a mask of all lanes, since g++ 12 takes the others' undefined lanes for an error.
#define MEGATRON_WORDS __attribute__((target("avx512f,avx512bw")))

namespace megatron::kernels::cpu {
namespace {
constexpr std::int64_t kWords = 32;  // of a vector
constexpr std::int64_t kAhead = 12;  // rows: each lies on a page of its own, where no hardware prefetcher follows

__mmask32 first(std::int64_t count) {
  return static_cast<__mmask32>((std::uint64_t{1} << std::min(count, kWords)) - 1);
}
}  // namespace

MEGATRON_WORDS Exponents exponents_of(const std::byte* elements, std::int64_t step, std::int64_t rows,
                                      std::int64_t count) {
  // Zero becomes the largest number of 16 bits for the minimum.
  const __m512i size_bits = _mm512_set1_epi16(0x7FFF), one = _mm512_set1_epi16(1);
  __m512i least = _mm512_set1_epi16(-1), largest = _mm512_setzero_si512();
  for (std::int64_t row = 0; row < rows; ++row, elements += step)
    for (std::int64_t i = 0; i < count; i += kWords) {
      __builtin_prefetch(elements + kAhead * step + 2 * i);
      const __m512i size = _mm512_and_si512(_mm512_maskz_loadu_epi16(first(count - i), elements + 2 * i), size_bits);
      least = _mm512_min_epu16(least, _mm512_sub_epi16(size, one));
      largest = _mm512_max_epu16(largest, size);
    }
  alignas(64) std::uint16_t low[kWords], high[kWords];
  _mm512_store_si512(low, least);
  _mm512_store_si512(high, largest);
  const std::int64_t smallest = *std::min_element(low, low + kWords), greatest = *std::max_element(high, high + kWords);
  return {smallest == 0xFFFF ? Exponents().least : (smallest + 1) >> 7, greatest >> 7};
}

MEGATRON_WORDS void swap_pairs(const std::byte* elements, std::int64_t count, float scale, float* units) {
  const __m512 factor = _mm512_set1_ps(scale);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
  for (std::int64_t i = 0; i < count; i += kWords) {
    const __m512i pairs = _mm512_maskz_loadu_epi16(first(count - i), elements + 2 * i);
    const __m512 even = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, pairs, 16)), factor);
    const __m512 odd = _mm512_mul_ps(_mm512_castsi512_ps(_mm512_and_si512(pairs, upper)), factor);
    const __m512i swapped = _mm512_or_si512(_mm512_and_si512(_mm512_castps_si512(even), upper),
                                            _mm512_maskz_srli_epi32(0xFFFF, _mm512_castps_si512(odd), 16));
    // What is stored under a mask cannot be read again until it has reached the cache.
    if (count - i >= kWords)
      _mm512_storeu_si512(units + i / 2, swapped);
    else
      _mm512_mask_storeu_epi32(units + i / 2, static_cast<__mmask16>((1U << (count - i) / 2) - 1), swapped);
  }
}

#else

namespace megatron::kernels::cpu {

Exponents exponents_of(const std::byte*, std::int64_t, std::int64_t, std::int64_t) {
  throw Error("no instruction for pairs of bfloat16");
}
void swap_pairs(const std::byte*, std::int64_t, float, float*) { throw Error("no instruction for pairs of bfloat16"); }

#endif

bool pairs_are_exact(const Exponents& left, float scale, const Exponents& right) {
  constexpr std::int64_t kInfinite = 255;
  // bfloat16 has 7 bits behind the point: a product is a multiple of 2^(e + f − 2·127 − 2·7).
  constexpr std::int64_t kLeastSum = 2 * 127 + 2 * 7 - 126;
  int exponent = 0;
  if (std::frexp(scale, &exponent) != 0.5F) return false;
  const std::int64_t shift = exponent - 1;
  if (left.largest == kInfinite || right.largest == kInfinite || left.largest + shift >= kInfinite) return false;
  if (left.least + shift < 1 || right.least < 1) return false;
  return left.least + shift + right.least >= kLeastSum;
}

}  // namespace megatron::kernels::cpu
