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
HWY_INLINE V load(const BFloat16* from) {
  const hn::Rebind<std::uint16_t, D> half;
  const VU bits = hn::PromoteTo(DU(), hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(from)));
  return hn::BitCast(D(), hn::ShiftLeft<16>(bits));
}
HWY_INLINE V load(const Float16* from) {
  const hn::Rebind<hwy::float16_t, D> half;
  return hn::PromoteTo(D(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
}
/// The instruction for this flushes subnormals: rounded with integers instead.
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
