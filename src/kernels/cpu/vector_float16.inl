// Vectors of floats from and to 16-bit elements, with the bits of base/float16.h. Included once per instruction set,
// behind vector_math.inl; include "base/float16.h" above foreach_target.h.
// clang-format off: the order of inclusion is fixed by Highway
HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {
// clang-format on

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE V load(const BFloat16* from) { return V(static_cast<float>(*from)); }
HWY_INLINE V load(const Float16* from) { return V(static_cast<float>(*from)); }
HWY_INLINE void store(V value, BFloat16* to) { *to = BFloat16(value.raw); }
HWY_INLINE void store(V value, Float16* to) { *to = Float16(value.raw); }
#else
#if HWY_TARGET == HWY_AVX3
// The instruction that rounds to bfloat16 flushes subnormals: integers instead. One permutation each way: the elements
// are the odd words of their floats. The fix-up puts quiet NaN back where the integers made something else of it.
HWY_INLINE V load(const BFloat16* from) {
  alignas(64) constexpr std::uint16_t kSpread[32] = {0, 0, 0, 1, 0, 2,  0, 3,  0, 4,  0, 5,  0, 6,  0, 7,
                                                     0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};
  const __m512i bits = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  return V{_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xAAAAAAAAU, _mm512_load_si512(kSpread), bits))};
}
HWY_INLINE void store(V value, BFloat16* to) {
  alignas(64) constexpr std::uint16_t kOdd[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                  23, 25, 27, 29, 31, 1,  3,  5,  7,  9,  11,
                                                  13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
  const __m512i bits = _mm512_castps_si512(value.raw);
  const __mmask16 odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  const __m512i half = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF));
  const __m512i rounded = _mm512_mask_add_epi32(half, odd, half, _mm512_set1_epi32(1));
  const __m512 fixed = _mm512_fixupimm_ps(_mm512_castsi512_ps(rounded), value.raw, _mm512_set1_epi32(0x22), 0);
  const __m512i words = _mm512_permutexvar_epi16(_mm512_load_si512(kOdd), _mm512_castps_si512(fixed));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(words));
}
#else
HWY_INLINE V load(const BFloat16* from) {
  const hn::Rebind<std::uint16_t, D> half;
  const VU bits = hn::PromoteTo(DU(), hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(from)));
  return hn::BitCast(D(), hn::ShiftLeft<16>(bits));
}
HWY_INLINE void store(V value, BFloat16* to) {
  const DU du;
  const VU bits = hn::BitCast(du, value);
  const VU odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
  const VU rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFU)));
  const VU quiet = hn::Or(bits, hn::Set(du, 0x00400000U));
  const VU chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
  const auto upper = hn::BitCast(DI(), hn::ShiftRight<16>(chosen));
  const hn::Rebind<std::uint16_t, D> half;
  hn::StoreU(hn::DemoteTo(half, upper), half, reinterpret_cast<std::uint16_t*>(to));
}
#endif
HWY_INLINE V load(const Float16* from) {
  const hn::Rebind<hwy::float16_t, D> half;
  return hn::PromoteTo(D(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
}
HWY_INLINE void store(V value, Float16* to) {
  const hn::Rebind<hwy::float16_t, D> half;
  hn::StoreU(hn::DemoteTo(half, value), half, reinterpret_cast<hwy::float16_t*>(to));
}
#endif

/// The first `count` < kLanes elements; the other lanes are `fill`.
template <typename T>
HWY_INLINE V load_some(const T* from, std::int64_t count, float fill = 0) {
  alignas(64) float lanes[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] = i < count ? static_cast<float>(from[i]) : fill;
  return hn::Load(D(), lanes);
}
template <typename T>
HWY_INLINE void store_some(V value, T* to, std::int64_t count) {
  alignas(64) float lanes[kLanes];
  hn::Store(value, D(), lanes);
  for (std::int64_t i = 0; i < count; ++i) to[i] = T(lanes[i]);
}

/// A full or partial vector.
template <typename T>
HWY_INLINE V load_valid(const T* from, std::int64_t valid, float fill = 0) {
  return valid == kLanes ? load(from) : load_some(from, valid, fill);
}
template <typename T>
HWY_INLINE void store_valid(V value, T* to, std::int64_t valid) {
  if (valid == kLanes)
    store(value, to);
  else
    store_some(value, to, valid);
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
