#include "kernels/cpu/attention_rows.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/float16.h"
#include "base/rng.h"
#include "kernels/cpu/targets.inl"
#include "kernels/cpu/tile_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_rows.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"
// behind vector_math.inl
#include "kernels/cpu/element_types.inl"

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr std::int64_t kMaxColumns = kPanelRowStride;  // of a row of scores

HWY_INLINE float first_lane(V v) { return hn::GetLane(v); }

HWY_INLINE void fill(float* to, std::int64_t begin, std::int64_t end, float value) {
  for (std::int64_t i = begin; i < end; ++i) to[i] = value;
}

void cap_scores(const ScoreRow& row) {
  const V cap = set(row.soft_cap), inverse = set(1 / row.soft_cap);
  for (std::int64_t i = row.begin; i < row.end; i += kLanes)
    store(hn::Mul(cap, tanh(hn::Mul(load(row.scores + i), inverse))), row.scores + i);
}

// Caps the scores and sets what the row does not see to −∞, whose exponential is exactly 0.
void cap_and_mask(const ScoreRow& row) {
  if (row.soft_cap > 0) cap_scores(row);
  fill(row.scores, row.begin, row.low, kMinusInfinity);
  fill(row.scores, row.high, row.end, kMinusInfinity);
}

// words[i] decides on column i, for i in [begin, end).
void dropout_words(const ScoreRow& row, std::uint32_t* words) {
  const DU du;
  for (std::int64_t i = row.begin; i < row.end; i += 4 * kLanes) {
    VU c0 = hn::Set(du, row.dropout.sample), c1 = hn::Set(du, row.dropout.head);
    VU c2 = hn::Set(du, row.dropout.query);
    VU c3 = hn::Iota(du, static_cast<std::uint32_t>((row.first_key + i) / 4));
    philox(row.dropout.key, c0, c1, c2, c3);
    store_interleaved(c0, c1, c2, c3, words + i);
  }
}

HWY_INLINE V drop(V value, const std::uint32_t* words, const RowDropout& dropout) {
  const DI di;
  const auto bits = hn::BitCast(di, hn::ShiftRight<8>(hn::LoadU(DU(), words)));
  const auto dropped = hn::Lt(bits, hn::Set(di, static_cast<std::int32_t>(dropout.threshold)));
  return hn::IfThenZeroElse(hn::RebindMask(D(), dropped), hn::Mul(value, set(dropout.scale)));
}

float largest_score(const ScoreRow& row) {
  V best = set(kMinusInfinity);
  for (std::int64_t i = row.begin; i < row.end; i += kLanes) best = hn::Max(load(row.scores + i), best);
  alignas(64) float lanes[kLanes];
  hn::Store(best, D(), lanes);
  float result = lanes[0];
  for (std::int64_t i = 1; i < kLanes; ++i) result = HWY_MAX(result, lanes[i]);
  return result;
}

// Scores become e^(score − max); returns their sum over 16 lanes.
float exponentials(const ScoreRow& row, float max) {
  const V top = set(max);
  V sums[kParts];
  for (int part = 0; part < kParts; ++part) sums[part] = hn::Zero(D());
  for (std::int64_t i = row.begin; i < row.end; i += kGroup)
    for_each_part(
        [&](auto part) HWY_ATTR {
          const V p = exp(hn::Sub(load(row.scores + i + part * kLanes), top));
          sums[part] = hn::Add(sums[part], p);
          store(p, row.scores + i + part * kLanes);
        },
        std::make_index_sequence<static_cast<std::size_t>(kParts)>());
  alignas(64) float lanes[kGroup];
  for (int part = 0; part < kParts; ++part) store(sums[part], lanes + part * kLanes);
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

void drop_row(const ScoreRow& row) {
  alignas(64) std::uint32_t words[kMaxColumns + 64];
  dropout_words(row, words);
  for (std::int64_t i = row.begin; i < row.end; i += kLanes)
    store(drop(load(row.scores + i), words + i, row.dropout), row.scores + i);
}

void softmax(const ScoreRow& row, RowState& state, float* o, std::int64_t width) {
  if (row.low >= row.high) {
    fill(row.scores, row.begin, row.end, 0);
    return;
  }
  cap_and_mask(row);
  const float old = state.max, block = largest_score(row);
  const float max = block > old ? block : old;
  state.max = max;
  const float sum = exponentials(row, max);
  if (old == kMinusInfinity) {
    state.sum = sum;
  } else {
    const V correction = exp(set(old - max));
    state.sum = first_lane(fma(set(state.sum), correction, set(sum)));
    if (old != max)
      for_each_vector(width, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
        store_valid(hn::Mul(load_valid(o + i, valid), correction), o + i, valid);
      });
  }
  if (row.dropout.on) drop_row(row);
}

void gradient(const ScoreRow& row, float* dp, float lse, float delta, float scale) {
  if (row.low >= row.high) {
    fill(row.scores, row.begin, row.end, 0);
    fill(dp, row.begin, row.end, 0);
    return;
  }
  cap_and_mask(row);
  fill(dp, row.begin, row.low, 0);
  fill(dp, row.high, row.end, 0);
  alignas(64) std::uint32_t words[kMaxColumns + 64];
  if (row.dropout.on) dropout_words(row, words);
  const V shift = set(lse), centre = set(delta), factor = set(scale), zero = hn::Zero(D());
  for (std::int64_t i = row.begin; i < row.end; i += kLanes) {
    const V score = load(row.scores + i);
    const V p = exp(hn::Sub(score, shift));
    V change = load(dp + i), kept = p;
    if (row.dropout.on) {
      change = drop(change, words + i, row.dropout);
      kept = drop(p, words + i, row.dropout);
    }
    V ds = hn::Mul(hn::Mul(p, hn::Sub(change, centre)), factor);
    if (row.soft_cap > 0) {
      const V t = hn::Mul(score, set(1 / row.soft_cap));
      ds = hn::IfThenElse(hn::Eq(p, zero), zero, hn::Mul(ds, fnma(t, t, set(1))));
    }
    store(kept, row.scores + i);
    store(ds, dp + i);
  }
}

float finish(const RowState& state, float* o, std::int64_t width) {
  if (state.max == kMinusInfinity) {
    fill(o, 0, width, 0);
    return kMinusInfinity;
  }
  const V sum = set(state.sum);
  for_each_vector(width, [&](std::int64_t i, std::int64_t valid)
                             HWY_ATTR { store_valid(hn::Div(load_valid(o + i, valid), sum), o + i, valid); });
  return first_lane(hn::Add(set(state.max), log(sum)));
}

template <typename T>
float dot_of(const T* a, const T* b, std::int64_t width) {
  LaneSum sum;
  for_each_lane_group(width, [&](std::int64_t i, auto part, std::int64_t valid) HWY_ATTR {
    sum.add_product(part, load_valid(a + i, valid), load_valid(b + i, valid));
  });
  return static_cast<float>(sum.total());
}

float dot(DType dtype, const void* a, const void* b, std::int64_t width) {
  float result = 0;
  with_type(dtype, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    result = dot_of(static_cast<const T*>(a), static_cast<const T*>(b), width);
  });
  return result;
}

void scaled_copy(DType dtype, const void* from, float scale, float* to, std::int64_t width) {
  with_type(dtype, [&](auto type) HWY_ATTR {
    const auto* in = static_cast<const decltype(type)*>(from);
    for_each_vector(width, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
      store_valid(hn::Mul(load_valid(in + i, valid), set(scale)), to + i, valid);
    });
  });
}

void widened_copy(DType dtype, const void* from, float* to, std::int64_t width) {
  with_type(dtype, [&](auto type) HWY_ATTR { convert(static_cast<const decltype(type)*>(from), to, width); });
}

void narrowed_copy(DType dtype, const float* from, void* to, std::int64_t width) {
  with_type(dtype, [&](auto type) HWY_ATTR { convert(from, static_cast<decltype(type)*>(to), width); });
}

const AttentionRowKernels* row_kernels_of_target() {
  static constexpr AttentionRowKernels kernels = {&softmax,     &gradient,     &finish,       &dot,
                                                  &scaled_copy, &widened_copy, &narrowed_copy};
  return &kernels;
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatron::kernels::cpu {

HWY_EXPORT(row_kernels_of_target);

const AttentionRowKernels& attention_row_kernels() { return *HWY_DYNAMIC_DISPATCH(row_kernels_of_target)(); }

}  // namespace megatron::kernels::cpu
#endif
