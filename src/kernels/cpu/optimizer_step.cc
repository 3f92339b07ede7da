#include "kernels/cpu/optimizer_step.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/float16.h"
#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer_step.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"
// behind vector_math.inl
#include "kernels/cpu/element_types.inl"

#ifndef MEGATRON_KERNELS_CPU_OPTIMIZER_OPERANDS
#define MEGATRON_KERNELS_CPU_OPTIMIZER_OPERANDS
namespace megatron::kernels::cpu {
namespace {
struct AdamFactors {
  float lr, beta1, beta2, rest1, rest2, eps, decay, correct1, correct2, grad_scale;
};
struct SgdFactors {
  float lr, momentum, decay, grad_scale;
  bool first;
};
}  // namespace
}  // namespace megatron::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

template <typename T>
void adamw_piece_of(const AdamFactors& f, float* p, const float* g, float* m, float* v, T* rounded,
                    std::int64_t count) {
  const V beta1 = set(f.beta1), beta2 = set(f.beta2), rest1 = set(f.rest1), rest2 = set(f.rest2);
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    const V grad = hn::Mul(set(f.grad_scale), load_valid(g + i, valid));
    const V first = fma(beta1, load_valid(m + i, valid), hn::Mul(rest1, grad));
    const V second = fma(beta2, load_valid(v + i, valid), hn::Mul(rest2, hn::Mul(grad, grad)));
    const V root = hn::Add(hn::Sqrt(hn::Mul(second, set(f.correct2))), set(f.eps));
    const V weight = load_valid(p + i, valid);
    const V update = fma(set(f.decay), weight, hn::Div(hn::Mul(first, set(f.correct1)), root));
    store_valid(first, m + i, valid);
    store_valid(second, v + i, valid);
    store_weights(fnma(set(f.lr), update, weight), p, rounded, i, valid);
  });
}

void adamw_piece(const AdamFactors& f, float* p, const float* g, float* m, float* v, DType dtype, void* rounded,
                 std::int64_t count) {
  with_type(dtype,
            [&](auto type) HWY_ATTR { adamw_piece_of(f, p, g, m, v, static_cast<decltype(type)*>(rounded), count); });
}

template <typename T>
void sgd_piece_of(const SgdFactors& f, float* p, const float* g, float* buf, T* rounded, std::int64_t count) {
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    const V weight = load_valid(p + i, valid);
    V change = fma(set(f.decay), weight, hn::Mul(set(f.grad_scale), load_valid(g + i, valid)));
    if (buf != nullptr) {
      if (!f.first) change = fma(set(f.momentum), load_valid(buf + i, valid), change);
      store_valid(change, buf + i, valid);
    }
    store_weights(fnma(set(f.lr), change, weight), p, rounded, i, valid);
  });
}

void sgd_piece(const SgdFactors& f, float* p, const float* g, float* buf, DType dtype, void* rounded,
               std::int64_t count) {
  with_type(dtype,
            [&](auto type) HWY_ATTR { sgd_piece_of(f, p, g, buf, static_cast<decltype(type)*>(rounded), count); });
}

void widen_piece(DType dtype, const void* from, float* to, std::int64_t count) {
  with_type(dtype, [&](auto type) HWY_ATTR { convert(static_cast<const decltype(type)*>(from), to, count); });
}

// sums[s] = Σ x² of segment s in element order; lanes are segments. Squares of floats are exact in double.
void squared_piece(const float* x, std::int64_t segments, double* sums) {
  std::int64_t s = 0;
  for (; s + kGroup <= segments; s += kGroup) {
    for (int part = 0; part < kParts; ++part) {
      LaneSum sum;
      for (std::int64_t i = 0; i < kNormSegment; i += 4) {
        // Rows of 256 bytes defeat the machine's own prefetching; four lines each time keep two groups ahead.
        if (part == 0)
          for (std::int64_t line = 0; line < 4; ++line)
            hwy::Prefetch(x + (s + 2 * kGroup) * kNormSegment + (i + line) * kGroup);
        V columns[4];
        load_transposed(x + (s + part * kLanes) * kNormSegment + i, kNormSegment, columns);
        for (int j = 0; j < 4; ++j) sum.add_product(0, columns[j], columns[j]);
      }
      sum.store_lanes(0, sums + s + part * kLanes);
    }
  }
  for (; s < segments; ++s) {
    double sum = 0;
    for (std::int64_t i = s * kNormSegment; i < (s + 1) * kNormSegment; ++i)
      sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    sums[s] = sum;
  }
}

template <typename T>
bool finite_piece_of(const T* x, std::int64_t count) {
  const DU du;
  VU bad = hn::Zero(du);
  const VU infinity = hn::Set(du, 0x7F800000U);
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    const VU exponent = hn::And(hn::BitCast(du, load_valid(x + i, valid)), infinity);
    bad = hn::Or(bad, hn::VecFromMask(du, hn::Eq(exponent, infinity)));
  });
  return hn::AllFalse(du, hn::Ne(bad, hn::Zero(du)));
}

bool finite_piece(DType dtype, const void* x, std::int64_t count) {
  bool finite = true;
  with_type(dtype, [&](auto type) HWY_ATTR { finite = finite_piece_of(static_cast<const decltype(type)*>(x), count); });
  return finite;
}

template <typename T>
std::int64_t zeros_piece_of(const T* x, std::int64_t count) {
  std::int64_t zeros = 0;
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    zeros += static_cast<std::int64_t>(hn::CountTrue(D(), hn::Eq(load_valid(x + i, valid, 1), hn::Zero(D()))));
  });
  return zeros;
}

std::int64_t zeros_piece(DType dtype, const void* x, std::int64_t count) {
  std::int64_t zeros = 0;
  with_type(dtype, [&](auto type) HWY_ATTR { zeros = zeros_piece_of(static_cast<const decltype(type)*>(x), count); });
  return zeros;
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <atomic>
#include <mutex>

#include "kernels/cpu/elements.h"
#include "kernels/cpu/parallel_rows.h"

namespace megatron::kernels::cpu {

HWY_EXPORT(adamw_piece);
HWY_EXPORT(sgd_piece);
HWY_EXPORT(widen_piece);
HWY_EXPORT(squared_piece);
HWY_EXPORT(finite_piece);
HWY_EXPORT(zeros_piece);

void adamw_step(Executor& exec, const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v,
                TensorView rounded) noexcept {
  const AdamFactors factors{static_cast<float>(step.lr),
                            static_cast<float>(step.beta1),
                            static_cast<float>(step.beta2),
                            static_cast<float>(1 - step.beta1),
                            static_cast<float>(1 - step.beta2),
                            static_cast<float>(step.eps),
                            static_cast<float>(step.weight_decay),
                            static_cast<float>(1 / step.bias_correction1),
                            static_cast<float>(1 / step.bias_correction2),
                            static_cast<float>(step.grad_scale)};
  parallel_range(exec, p.numel(), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(adamw_piece)
    (factors, p.data<float>() + begin, g.data<float>() + begin, m.data<float>() + begin, v.data<float>() + begin,
     rounded.dtype, at_element_or_null(rounded, begin), end - begin);
  });
}

void sgd_step(Executor& exec, const ref::SgdStep& step, TensorView p, ConstTensorView g, TensorView buf,
              TensorView rounded) noexcept {
  const SgdFactors factors{static_cast<float>(step.lr), static_cast<float>(step.momentum),
                           static_cast<float>(step.weight_decay), static_cast<float>(step.grad_scale), step.first};
  float* history = buf.num_dims() == 0 ? nullptr : buf.data<float>();
  parallel_range(exec, p.numel(), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(sgd_piece)
    (factors, p.data<float>() + begin, g.data<float>() + begin, history == nullptr ? nullptr : history + begin,
     rounded.dtype, at_element_or_null(rounded, begin), end - begin);
  });
}

namespace {
// Adds the squares of x[0, count) to `sum`; only the last segment may be a part of one.
void add_squares(const float* x, std::int64_t count, ExactSum& sum) {
  constexpr std::int64_t kSegments = 256;
  double sums[kSegments];
  for (std::int64_t begin = 0; begin < count; begin += kSegments * kNormSegment) {
    const std::int64_t whole = std::min(kSegments, (count - begin) / kNormSegment);
    HWY_DYNAMIC_DISPATCH(squared_piece)(x + begin, whole, sums);
    for (std::int64_t s = 0; s < whole; ++s) sum.add(sums[s]);
  }
  double rest = 0;
  for (std::int64_t i = count / kNormSegment * kNormSegment; i < count; ++i)
    rest += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  sum.add(rest);
}

// The same for 16-bit elements [begin, end), widened piece by piece.
void add_widened_squares(const ConstTensorView& x, std::int64_t begin, std::int64_t end, ExactSum& sum) {
  constexpr std::int64_t kPiece = 64 * kNormSegment;
  alignas(64) float widened[kPiece];
  for (; begin < end; begin += kPiece) {
    const std::int64_t count = std::min(kPiece, end - begin);
    HWY_DYNAMIC_DISPATCH(widen_piece)(x.dtype, at_element(x, begin), widened, count);
    add_squares(widened, count, sum);
  }
}
}  // namespace

void add_squared_norm(Executor& exec, ConstTensorView x, ExactSum& sum) noexcept {
  std::mutex mutex;  // exact sums may be joined in any order
  parallel_range(exec, x.numel(), [&](std::int64_t begin, std::int64_t end) {
    ExactSum mine;
    if (x.dtype == DType::float32)
      add_squares(x.data<float>() + begin, end - begin, mine);
    else
      add_widened_squares(x, begin, end, mine);
    const std::lock_guard<std::mutex> lock(mutex);
    sum.add(mine);
  });
}

bool all_finite(Executor& exec, ConstTensorView x) noexcept {
  std::atomic<bool> finite{true};
  parallel_range(exec, x.numel(), [&](std::int64_t begin, std::int64_t end) {
    if (!HWY_DYNAMIC_DISPATCH(finite_piece)(x.dtype, at_element(x, begin), end - begin))
      finite.store(false, std::memory_order_relaxed);
  });
  return finite.load();
}

std::int64_t count_zeros(Executor& exec, ConstTensorView x) noexcept {
  std::atomic<std::int64_t> zeros{0};
  parallel_range(exec, x.numel(), [&](std::int64_t begin, std::int64_t end) {
    zeros.fetch_add(HWY_DYNAMIC_DISPATCH(zeros_piece)(x.dtype, at_element(x, begin), end - begin),
                    std::memory_order_relaxed);
  });
  return zeros.load();
}

}  // namespace megatron::kernels::cpu
#endif
