#include "kernels/cpu/initialize.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/initialize.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

// 2^−24 times the upper 24 bits.
HWY_INLINE V unit_interval(VU bits) {
  return hn::Mul(hn::ConvertTo(D(), hn::BitCast(DI(), hn::ShiftRight<8>(bits))), set(0x1p-24F));
}

// (bits + plus)·2^−32: 16 + 16 bits, so that only one rounding happens and signed conversion serves.
HWY_INLINE V unit_interval_32(VU bits, std::uint32_t plus) {
  const DU du;
  const V high = hn::ConvertTo(D(), hn::BitCast(DI(), hn::ShiftRight<16>(bits)));
  const VU rest = hn::Add(hn::And(bits, hn::Set(du, 0xFFFFU)), hn::Set(du, plus));
  return hn::Mul(fma(high, set(65536), hn::ConvertTo(D(), hn::BitCast(DI(), rest))), set(0x1p-32F));
}

// log((bits + 1)·2^−32); near 1 by the distance from 1, which fp32 holds far better than the number itself.
HWY_INLINE V log_of_uniform(VU bits) {
  const V u = unit_interval_32(bits, 1);
  V e, f;
  split_for_log(u, e, f);
  const M near_one = hn::Gt(u, set(0.75F));
  f = hn::IfThenElse(near_one, hn::Neg(unit_interval_32(hn::Not(bits), 0)), f);
  e = hn::IfThenZeroElse(near_one, e);
  return log_of_parts(e, f);
}

// Cosine and sine of 2π·(bits >> 8)·2^−24, by quarter turns; the reduction is exact.
HWY_INLINE void cos_sin_turns(VU bits, V& cosine, V& sine) {
  const DU du;
  const DI di;
  const VU turn = hn::ShiftRight<8>(bits);
  const VU quarter = hn::ShiftRight<22>(hn::Add(turn, hn::Set(du, 1U << 21)));
  const auto rest = hn::Sub(hn::BitCast(di, turn), hn::BitCast(di, hn::ShiftLeft<22>(quarter)));
  const V y = hn::Mul(hn::ConvertTo(D(), rest), set(0x1p-22F));  // in [−½, ½] quarters
  const V y2 = hn::Mul(y, y);
  const V s = hn::Mul(
      y, polynomial(y2, 1.570796327e+00F, -6.459640961e-01F, 7.969258179e-02F, -4.681260233e-03F, 1.581941784e-04F));
  const V c = fma(
      y2, polynomial(y2, -1.233700550e+00F, 2.536695072e-01F, -2.086346838e-02F, 9.191628360e-04F, -2.485205496e-05F),
      set(1));
  const auto odd = hn::RebindMask(D(), hn::Ne(hn::And(quarter, hn::Set(du, 1U)), hn::Zero(du)));
  // Signs: cosine is negative in quarters 1 and 2, sine in 2 and 3.
  const VU cosine_sign = hn::ShiftLeft<31>(hn::ShiftRight<1>(hn::Add(quarter, hn::Set(du, 1U))));
  const VU sine_sign = hn::ShiftLeft<31>(hn::ShiftRight<1>(quarter));
  cosine = hn::BitCast(D(), hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, s, c)), cosine_sign));
  sine = hn::BitCast(D(), hn::Xor(hn::BitCast(du, hn::IfThenElse(odd, c, s)), sine_sign));
}

// Box and Muller: two normal numbers from two words.
HWY_INLINE void normal_pair(VU word0, VU word1, V scale, V& z0, V& z1) {
  const V radius = hn::Sqrt(hn::Mul(set(-2), log_of_uniform(word0)));
  V cosine, sine;
  cos_sin_turns(word1, cosine, sine);
  z0 = hn::Mul(scale, hn::Mul(radius, cosine));
  z1 = hn::Mul(scale, hn::Mul(radius, sine));
}

// 4·kLanes values from counters quad, quad + 1, …
template <bool kNormal>
HWY_INLINE void values_of_quads(PhiloxKey key, float scale, std::uint64_t quad, float* values) {
  const DU du;
  const VU low = hn::Add(hn::Set(du, static_cast<std::uint32_t>(quad)), hn::Iota(du, 0U));
  const VU wrapped = hn::VecFromMask(du, hn::Lt(low, hn::Set(du, static_cast<std::uint32_t>(quad))));
  VU c0 = low, c1 = hn::Sub(hn::Set(du, static_cast<std::uint32_t>(quad >> 32)), wrapped);
  VU c2 = hn::Zero(du), c3 = hn::Zero(du);
  philox(key, c0, c1, c2, c3);
  V z[4];
  if constexpr (kNormal) {
    normal_pair(c0, c1, set(scale), z[0], z[1]);
    normal_pair(c2, c3, set(scale), z[2], z[3]);
  } else {
    const VU words[4] = {c0, c1, c2, c3};
    for (int j = 0; j < 4; ++j) z[j] = hn::Mul(set(scale), hn::Sub(hn::Mul(set(2), unit_interval(words[j])), set(1)));
  }
  store_interleaved(z[0], z[1], z[2], z[3], values);
}

template <bool kNormal>
HWY_INLINE void fill_values(PhiloxKey key, float scale, std::int64_t first, std::int64_t count, float* values) {
  alignas(64) float buffer[4 * kLanes];
  std::int64_t done = 0;
  while (done < count) {
    const std::int64_t index = first + done, skip = index % 4;
    const auto quad = static_cast<std::uint64_t>(index / 4);
    if (skip == 0 && count - done >= 4 * kLanes) {
      values_of_quads<kNormal>(key, scale, quad, values + done);
      done += 4 * kLanes;
      continue;
    }
    values_of_quads<kNormal>(key, scale, quad, buffer);
    const std::int64_t take = HWY_MIN(4 * kLanes - skip, count - done);
    for (std::int64_t i = 0; i < take; ++i) values[done + i] = buffer[skip + i];
    done += take;
  }
}

void fill_normal_values(PhiloxKey key, float scale, std::int64_t first, std::int64_t count, float* values) {
  fill_values<true>(key, scale, first, count, values);
}

void fill_uniform_values(PhiloxKey key, float scale, std::int64_t first, std::int64_t count, float* values) {
  fill_values<false>(key, scale, first, count, values);
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace megatron::kernels::cpu {

HWY_EXPORT(fill_normal_values);
HWY_EXPORT(fill_uniform_values);

void normal_values(PhiloxKey key, float scale, std::int64_t first, std::int64_t count, float* values) noexcept {
  HWY_DYNAMIC_DISPATCH(fill_normal_values)(key, scale, first, count, values);
}

void uniform_values(PhiloxKey key, float scale, std::int64_t first, std::int64_t count, float* values) noexcept {
  HWY_DYNAMIC_DISPATCH(fill_uniform_values)(key, scale, first, count, values);
}

}  // namespace megatron::kernels::cpu
#endif
