// Vectors, elementary functions and sums in fixed lanes for the fp32 kernels. Included once per instruction set, after
// hwy/highway.h, inside no namespace. Every function gives the same bits on every instruction set: products and sums are
// fused explicitly or rounded one by one, never at the compiler's choice, and sums run over 16 lanes whatever the width.
// Include <cmath>, <cstdint>, <utility> and "base/rng.h" above foreach_target.h: it is read once per target.
// clang-format off: the order of inclusion is fixed by Highway
HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
// clang-format on

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using DI = hn::RebindToSigned<D>;
using DU = hn::RebindToUnsigned<D>;
using VU = hn::Vec<DU>;
using M = hn::Mask<D>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
constexpr std::int64_t kGroup = 16;                // lanes of a sum
constexpr std::int64_t kParts = kGroup / kLanes;   // vectors that make up a group

HWY_INLINE V set(float value) { return hn::Set(D(), value); }
HWY_INLINE V load(const float* from) { return hn::LoadU(D(), from); }
HWY_INLINE void store(V value, float* to) { hn::StoreU(value, D(), to); }

/// The first `count` < kLanes elements; the other lanes are `fill`.
HWY_INLINE V load_some(const float* from, std::int64_t count, float fill = 0) {
  alignas(64) float lanes[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i) lanes[i] = i < count ? from[i] : fill;
  return hn::Load(D(), lanes);
}
HWY_INLINE void store_some(V value, float* to, std::int64_t count) {
  alignas(64) float lanes[kLanes];
  hn::Store(value, D(), lanes);
  for (std::int64_t i = 0; i < count; ++i) to[i] = lanes[i];
}

/// a·b + c, rounded once.
HWY_INLINE V fma(V a, V b, V c) {
#if HWY_TARGET == HWY_SCALAR
  return V(std::fma(a.raw, b.raw, c.raw));
#else
  return hn::MulAdd(a, b, c);
#endif
}
/// c − a·b, rounded once.
HWY_INLINE V fnma(V a, V b, V c) {
#if HWY_TARGET == HWY_SCALAR
  return V(std::fma(-a.raw, b.raw, c.raw));
#else
  return hn::NegMulAdd(a, b, c);
#endif
}

/// first + rest[0]·x + rest[1]·x² + …
template <typename... C>
HWY_INLINE V polynomial(V x, float first, C... rest) {
  if constexpr (sizeof...(rest) == 0)
    return set(first);
  else
    return fma(polynomial(x, rest...), x, set(first));
}

/// e^x; relative error < 1.1 ulp; 0 below −86.6, never above e^88.72; NaN stays NaN.
HWY_INLINE V exp(V x) {
  const DU du;
  const V limit = set(88.72F), magic = set(12582912.0F);  // 1.5·2²³: adding it rounds to an integer in the low bits
  const V y = hn::IfThenElse(hn::Gt(x, limit), limit, x);
  const V shifted = fma(y, set(1.44269504F), magic);
  const V n = hn::Sub(shifted, magic);
  const V r = fnma(n, set(-2.12194440e-4F), fnma(n, set(0.693359375F), y));
  const V p = polynomial(r, 4.999999343e-01F, 1.666652040e-01F, 4.166839078e-02F, 8.368745109e-03F, 1.381454018e-03F);
  const V e = hn::Add(fma(hn::Mul(r, r), p, r), set(1));
  // 2ⁿ⁻¹ from the low bits of `shifted`; twice e makes up for it, so that n = 128 works.
  const VU exponent = hn::Add(hn::ShiftLeft<23>(hn::BitCast(du, shifted)), hn::Set(du, 0x3F000000U));
  const V value = hn::Mul(hn::Add(e, e), hn::BitCast(D(), exponent));
  return hn::IfThenZeroElse(hn::Lt(x, set(-86.6F)), value);
}

/// 1 / (1 + e^−x), and `rest` = 1 − that without cancellation; relative error < 2.5 ulp where it is not below 1e-38.
HWY_INLINE V sigmoid(V x, V& rest) {
  const V t = exp(hn::Neg(x));
  const V s = hn::Div(set(1), hn::Add(set(1), t));
  rest = hn::Mul(t, s);
  return s;
}

/// e·ln 2 + log(1 + f) for f in [√½ − 1, √2 − 1]; error < 1.5 ulp.
HWY_INLINE V log_of_parts(V e, V f) {
  const V s = hn::Div(f, hn::Add(set(2), f));  // log(1 + f) = 2·atanh s
  const V s2 = hn::Mul(s, s);
  const V p = hn::Mul(s2, polynomial(s2, 6.666666564e-01F, 4.000033655e-01F, 2.853721603e-01F, 2.358401838e-01F));
  // 2s = f − s·f, exact to the last bit of f
  const V half = hn::Mul(hn::Mul(set(0.5F), f), f);
  const V low = fma(s, hn::Add(half, p), hn::Mul(e, set(-2.12194440e-4F)));
  return fma(e, set(0.693359375F), hn::Sub(f, hn::Sub(half, low)));
}

/// x = 2^e·(1 + f) for normal positive x.
HWY_INLINE void split_for_log(V x, V& e, V& f) {
  const DU du;
  const VU bits = hn::Sub(hn::BitCast(du, x), hn::Set(du, 0x3F3504F3U));
  e = hn::ConvertTo(D(), hn::ShiftRight<23>(hn::BitCast(DI(), bits)));
  const VU mantissa = hn::Add(hn::And(bits, hn::Set(du, 0x007FFFFFU)), hn::Set(du, 0x3F3504F3U));
  f = hn::Sub(hn::BitCast(D(), mantissa), set(1));
}

/// Natural logarithm of normal positive numbers; error < 1.5 ulp.
HWY_INLINE V log(V x) {
  V e, f;
  split_for_log(x, e, f);
  return log_of_parts(e, f);
}

/// tanh x; error < 2 ulp; NaN stays NaN.
HWY_INLINE V tanh(V x) {
  const V size = hn::Abs(x), square = hn::Mul(x, x);
  const V p = polynomial(square, -3.333328370e-01F, 1.333148471e-01F, -5.374291343e-02F, 2.064857387e-02F,
                         -5.714686834e-03F);
  const V small = fma(hn::Mul(p, square), x, x);
  const V large = hn::Sub(set(1), hn::Div(set(2), hn::Add(exp(hn::Add(size, size)), set(1))));
  return hn::IfThenElse(hn::Lt(size, set(0.625F)), small, hn::CopySign(large, x));
}

/// Normal distribution: e = e^(−x²/2), and the return value Φ(x) = ½·erfc(−x/√2); error < 4 ulp for |x| < 8.
HWY_INLINE V normal_cdf(V x, V& e) {
  const V far = set(20);
  const V size = hn::IfThenElse(hn::Gt(hn::Abs(x), far), far, hn::Abs(x));
  const V z = hn::Mul(size, set(0.707106781F));
  const V square = hn::Mul(size, size);
  // The rounding error of x² is put back: e^−(h + l) ≈ e^−h·(1 − l).
  const V rest = hn::Mul(fma(size, size, hn::Neg(square)), set(0.5F));
  const V exponential = exp(hn::Mul(square, set(-0.5F)));
  e = fnma(exponential, rest, exponential);
  const V t = hn::Div(set(1), fma(z, set(0.45F), set(1)));
  const V p = polynomial(t, 2.538947875e-01F, 2.536248515e-01F, 2.313127080e-01F, 1.550328940e-01F, 2.037647826e-01F,
                         -2.486447319e-01F, 5.461123666e-01F, -7.719465230e-01F, 5.365958853e-01F, -1.859791402e-01F,
                         2.623211822e-02F);
  const V tail = hn::Mul(hn::Mul(hn::Mul(set(0.5F), e), t), p);
  return hn::IfThenElse(hn::Lt(x, hn::Zero(D())), tail, hn::Sub(set(1), tail));
}

/// Ten rounds of Philox4x32 on kLanes counters at once; see base/rng.h.
HWY_INLINE void philox(PhiloxKey key, VU& c0, VU& c1, VU& c2, VU& c3) {
  const DU du;
  const auto multiply = [&](VU a, std::uint32_t factor, VU& high) HWY_ATTR {
    [[maybe_unused]] const VU f = hn::Set(du, factor);
#if HWY_TARGET == HWY_SCALAR
    const std::uint64_t product = std::uint64_t{a.raw} * factor;
    high = hn::Set(du, static_cast<std::uint32_t>(product >> 32));
    return hn::Set(du, static_cast<std::uint32_t>(product));
#else
    const hn::RepartitionToWide<DU> dw;
    const auto even = hn::MulEven(a, f);                                          // products of lanes 0, 2, …
    const auto odd = hn::MulEven(hn::Shuffle2301(a), f);                          // of lanes 1, 3, …
    const auto high_even = hn::BitCast(du, hn::ShiftRight<32>(even));
    const auto high_odd = hn::And(hn::BitCast(du, odd), hn::BitCast(du, hn::Set(dw, 0xFFFFFFFF00000000ULL)));
    high = hn::Or(high_even, high_odd);
    return hn::Mul(a, f);
#endif
  };
  for (int round = 0; round < 10; ++round) {
    VU high0, high1;
    const VU low0 = multiply(c0, 0xD2511F53U, high0);
    const VU low1 = multiply(c2, 0xCD9E8D57U, high1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(du, key.k0));
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(du, key.k1));
    c1 = low1;
    c3 = low0;
    key.k0 += 0x9E3779B9U;
    key.k1 += 0xBB67AE85U;
  }
}

#if HWY_TARGET != HWY_SCALAR
// Four columns of rows r, r + 4, r + 8, … in one vector, one row per block of four lanes.
HWY_INLINE V load_row_blocks(const float* from, std::int64_t step) {
  const D d;
#if HWY_TARGET == HWY_AVX3
  const hn::Half<D> dh;
  const hn::Half<decltype(dh)> dq;
  const auto low = hn::Combine(dh, hn::LoadU(dq, from + 4 * step), hn::LoadU(dq, from));
  const auto high = hn::Combine(dh, hn::LoadU(dq, from + 12 * step), hn::LoadU(dq, from + 8 * step));
  return hn::Combine(d, high, low);
#elif HWY_TARGET == HWY_AVX2
  const hn::Half<D> dq;
  return hn::Combine(d, hn::LoadU(dq, from + 4 * step), hn::LoadU(dq, from));
#else
  (void)step;
  return hn::LoadU(d, from);
#endif
}
#endif

/// columns[j] = lane i is element j of row i, for kLanes rows `step` elements apart.
HWY_INLINE void load_transposed(const float* from, std::int64_t step, V columns[4]) {
#if HWY_TARGET == HWY_SCALAR
  (void)step;
  for (int j = 0; j < 4; ++j) columns[j] = load(from + j);
#else
  const D d;
  const hn::Repartition<double, D> dd;
  const V r0 = load_row_blocks(from, step), r1 = load_row_blocks(from + step, step);
  const V r2 = load_row_blocks(from + 2 * step, step), r3 = load_row_blocks(from + 3 * step, step);
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, r0, r1));
  const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, r0, r1));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, r2, r3));
  const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, r2, r3));
  columns[0] = hn::BitCast(d, hn::InterleaveLower(dd, low01, low23));
  columns[1] = hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23));
  columns[2] = hn::BitCast(d, hn::InterleaveLower(dd, high01, high23));
  columns[3] = hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23));
#endif
}

/// Zero in lanes ≥ count.
HWY_INLINE V first_lanes(V v, std::int64_t count) {
  return hn::IfThenElseZero(hn::FirstN(D(), static_cast<std::size_t>(count)), v);
}

/// to[4·i + j] = lane i of the j-th vector.
template <typename Vector, typename T>
HWY_INLINE void store_interleaved(Vector v0, Vector v1, Vector v2, Vector v3, T* to) {
#if HWY_TARGET == HWY_SCALAR
  to[0] = v0.raw, to[1] = v1.raw, to[2] = v2.raw, to[3] = v3.raw;
#else
  hn::StoreInterleaved4(v0, v1, v2, v3, hn::Rebind<T, D>(), to);
#endif
}

/// A sum of floats in double over 16 lanes: element i of a row goes to lane i mod 16 in ascending order; the lanes are
/// added as a binary tree.
class LaneSum {
 public:
  LaneSum() {
    for (int part = 0; part < kParts; ++part)
      for (int half = 0; half < kHalves; ++half) lanes_[part][half] = hn::Zero(DD());
  }
  HWY_INLINE void add(int part, V v) {
    for (int half = 0; half < kHalves; ++half) lanes_[part][half] = hn::Add(lanes_[part][half], widen(v, half));
  }
  /// Adds a·b; the product of two floats is exact in double.
  HWY_INLINE void add_product(int part, V a, V b) {
    for (int half = 0; half < kHalves; ++half)
      lanes_[part][half] = hn::MulAdd(widen(a, half), widen(b, half), lanes_[part][half]);
  }
  /// The lanes of a part.
  HWY_INLINE void store_lanes(int part, double* to) const {
    for (int half = 0; half < kHalves; ++half)
      hn::StoreU(lanes_[part][half], DD(), to + half * static_cast<int>(hn::MaxLanes(DD())));
  }
  /// Lane i + 8 is added to lane i, then i + 4, i + 2, i + 1.
  HWY_INLINE double total() const {
    hn::Vec<DD> sums[kParts * kHalves];
    for (int part = 0; part < kParts; ++part)
      for (int half = 0; half < kHalves; ++half) sums[part * kHalves + half] = lanes_[part][half];
    for (int n = kParts * kHalves / 2; n > 0; n /= 2)
      for (int i = 0; i < n; ++i) sums[i] = hn::Add(sums[i], sums[i + n]);
    return folded(DD(), sums[0]);
  }

 private:
#if HWY_TARGET == HWY_SCALAR
  static constexpr int kHalves = 1;
  using DD = hn::ScalableTag<double>;
  static HWY_INLINE hn::Vec<DD> widen(V v, int) { return hn::PromoteTo(DD(), v); }
  static HWY_INLINE double folded(DD, hn::Vec<DD> v) { return hn::GetLane(v); }
#else
  static constexpr int kHalves = 2;
  using DD = hn::RepartitionToWide<D>;
  static HWY_INLINE hn::Vec<DD> widen(V v, int half) {
    const hn::Half<D> dh;
    return half == 0 ? hn::PromoteTo(DD(), hn::LowerHalf(dh, v)) : hn::PromoteTo(DD(), hn::UpperHalf(dh, v));
  }
  // The upper half is added to the lower one until one lane is left.
  template <typename DN>
  static HWY_INLINE double folded(DN, hn::Vec<DN> v) {
    if constexpr (hn::MaxLanes(DN()) == 1) {
      return hn::GetLane(v);
    } else {
      const hn::Half<DN> half;
      return folded(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
    }
  }
#endif
  hn::Vec<DD> lanes_[kParts][kHalves];
};

template <typename Body, std::size_t... kIndex>
HWY_INLINE void for_each_part(const Body& body, std::index_sequence<kIndex...>) {
  (body(std::integral_constant<int, static_cast<int>(kIndex)>()), ...);
}

/// body(i, part, valid): the vectors of a row of `count` elements, group after group. `part` is a compile-time number
/// below kParts; `valid` is kLanes, or fewer at the end of the row.
template <typename Body>
HWY_INLINE void for_each_lane_group(std::int64_t count, const Body& body) {
  constexpr auto kAll = std::make_index_sequence<static_cast<std::size_t>(kParts)>();
  std::int64_t i = 0;
  for (; i + kGroup <= count; i += kGroup)
    for_each_part([&](auto part) HWY_ATTR { body(i + part * kLanes, part, kLanes); }, kAll);
  if (i == count) return;
  for_each_part(
      [&](auto part) HWY_ATTR {
        const std::int64_t begin = i + part * kLanes;
        if (begin < count) body(begin, part, HWY_MIN(kLanes, count - begin));
      },
      kAll);
}

/// Loads a full or partial vector.
HWY_INLINE V load_valid(const float* from, std::int64_t valid, float fill = 0) {
  return valid == kLanes ? load(from) : load_some(from, valid, fill);
}
HWY_INLINE void store_valid(V value, float* to, std::int64_t valid) {
  if (valid == kLanes)
    store(value, to);
  else
    store_some(value, to, valid);
}

/// body(i, valid) for the vectors of a row.
template <typename Body>
HWY_INLINE void for_each_vector(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, kLanes);
  if (i < count) body(i, count - i);
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
