#include "kernels/cpu/activation.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/float16.h"
#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"
// behind vector_math.inl
#include "kernels/cpu/element_types.inl"

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

// The exponential that f(x) needs: of −2u for ½·(1 + tanh u) = σ(2u), of −x for σ(x); x itself where there is none.
template <ActivationKind kKind>
HWY_INLINE V inner(V x) {
  if constexpr (kKind == ActivationKind::gelu_tanh)
    return exp(hn::Neg(hn::Mul(x, fma(hn::Mul(x, x), set(0.0713548162726F), set(1.59576912161F)))));
  else if constexpr (kKind == ActivationKind::silu)
    return exp(hn::Neg(x));
  else
    return x;
}

// f(x), and with kSlope also f'(x); `t` is inner(x).
template <ActivationKind kKind, bool kSlope>
HWY_INLINE V activate(V x, V t, V& slope) {
  if constexpr (kKind == ActivationKind::gelu_tanh) {
    const V s = hn::Div(set(1), hn::Add(set(1), t));
    if constexpr (kSlope) {
      const V rest = hn::Mul(t, s);
      const V du2 = fma(hn::Mul(x, x), set(0.214064448818F), set(1.59576912161F));
      slope = fma(hn::Mul(x, du2), hn::Mul(s, rest), s);
    }
    return hn::Mul(x, s);
  } else if constexpr (kKind == ActivationKind::gelu_erf) {
    V e;
    const V cdf = normal_cdf(x, e);
    if constexpr (kSlope) slope = fma(hn::Mul(x, set(0.398942280F)), e, cdf);
    return hn::Mul(x, cdf);
  } else if constexpr (kKind == ActivationKind::squared_relu) {
    // Not-positive x times 0 keeps NaN.
    const V positive = hn::IfThenElse(hn::Gt(x, hn::Zero(D())), x, hn::Mul(x, hn::Zero(D())));
    if constexpr (kSlope) slope = hn::Add(positive, positive);
    return hn::Mul(positive, positive);
  } else {
    const V s = hn::Div(set(1), hn::Add(set(1), t));
    if constexpr (kSlope) slope = fma(hn::Mul(x, s), hn::Mul(t, s), s);
    return hn::Mul(x, s);
  }
}

// body(i, valid, inner(x)) for the vectors of a row. Of 16-bit elements all exponentials of a stretch come first on
// AVX-512: a processor keeps more short chains of operations in flight than long ones. (Measured; floats lose by it.)
template <ActivationKind kKind, typename T, typename Body>
HWY_INLINE void for_each_inner(const T* x, std::int64_t width, const Body& body) {
  constexpr bool kExponential = kKind == ActivationKind::gelu_tanh || kKind == ActivationKind::silu;
  if constexpr (HWY_TARGET == HWY_AVX3 && sizeof(T) == 2 && kExponential) {
    constexpr std::int64_t kStretch = 512;
    alignas(64) float inners[kStretch];
    for (std::int64_t first = 0; first < width; first += kStretch) {
      const std::int64_t count = HWY_MIN(kStretch, width - first);
      for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
        hn::Store(inner<kKind>(load_valid(x + first + i, valid)), D(), inners + i);
      });
      for_each_vector(count, [&](std::int64_t i, std::int64_t valid)
                                 HWY_ATTR { body(first + i, valid, hn::Load(D(), inners + i)); });
    }
  } else {
    for_each_vector(width, [&](std::int64_t i, std::int64_t valid)
                               HWY_ATTR { body(i, valid, inner<kKind>(load_valid(x + i, valid))); });
  }
}

template <typename T>
struct Row {
  const T *x, *dy;
  T* out;
  std::int64_t width;
};

template <ActivationKind kKind, typename T>
void forward_row(const Row<T>& row) {
  for_each_inner<kKind>(row.x, row.width, [&](std::int64_t i, std::int64_t valid, V t) HWY_ATTR {
    V slope;
    store_valid(activate<kKind, false>(load_valid(row.x + i, valid), t, slope), row.out + i, valid);
  });
}

template <ActivationKind kKind, typename T>
void backward_row(const Row<T>& row) {
  for_each_inner<kKind>(row.x, row.width, [&](std::int64_t i, std::int64_t valid, V t) HWY_ATTR {
    V slope;
    activate<kKind, true>(load_valid(row.x + i, valid), t, slope);
    store_valid(hn::Mul(load_valid(row.dy + i, valid), slope), row.out + i, valid);
  });
}

template <ActivationKind kKind, typename T>
void gated_forward_row(const Row<T>& row) {
  for_each_inner<kKind>(row.x, row.width, [&](std::int64_t i, std::int64_t valid, V t) HWY_ATTR {
    V slope;
    const V y = activate<kKind, false>(load_valid(row.x + i, valid), t, slope);
    store_valid(hn::Mul(y, load_valid(row.x + row.width + i, valid)), row.out + i, valid);
  });
}

template <ActivationKind kKind, typename T>
void gated_backward_row(const Row<T>& row) {
  for_each_inner<kKind>(row.x, row.width, [&](std::int64_t i, std::int64_t valid, V t) HWY_ATTR {
    V slope;
    const V dy = load_valid(row.dy + i, valid);
    const V up = load_valid(row.x + row.width + i, valid);
    const V y = activate<kKind, true>(load_valid(row.x + i, valid), t, slope);
    store_valid(hn::Mul(hn::Mul(dy, up), slope), row.out + i, valid);
    store_valid(hn::Mul(dy, y), row.out + row.width + i, valid);
  });
}

template <ActivationKind kKind, typename T>
void run_row(bool gated, const Row<T>& row) {
  if (row.dy == nullptr)
    gated ? gated_forward_row<kKind>(row) : forward_row<kKind>(row);
  else
    gated ? gated_backward_row<kKind>(row) : backward_row<kKind>(row);
}

template <typename T>
void activation_rows_of(ActivationKind kind, bool gated, const ConstTensorView& dy, const ConstTensorView& x,
                        const TensorView& out, std::int64_t begin, std::int64_t end) {
  const bool backward = dy.num_dims() != 0;
  for (std::int64_t t = begin; t < end; ++t) {
    const Row<T> row{static_cast<const T*>(x.pointer) + t * x.strides[0],
                     backward ? static_cast<const T*>(dy.pointer) + t * dy.strides[0] : nullptr,
                     static_cast<T*>(out.pointer) + t * out.strides[0], gated ? x.shape[1] / 2 : x.shape[1]};
    switch (kind) {
      case ActivationKind::gelu_tanh:
        run_row<ActivationKind::gelu_tanh>(gated, row);
        break;
      case ActivationKind::gelu_erf:
        run_row<ActivationKind::gelu_erf>(gated, row);
        break;
      case ActivationKind::squared_relu:
        run_row<ActivationKind::squared_relu>(gated, row);
        break;
      case ActivationKind::silu:
        run_row<ActivationKind::silu>(gated, row);
        break;
    }
  }
}

void activation_rows(ActivationKind kind, bool gated, ConstTensorView dy, ConstTensorView x, TensorView out,
                     std::int64_t begin, std::int64_t end) {
  with_type(x.dtype,
            [&](auto type) HWY_ATTR { activation_rows_of<decltype(type)>(kind, gated, dy, x, out, begin, end); });
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/parallel_rows.h"

namespace megatron::kernels::cpu {

HWY_EXPORT(activation_rows);

namespace {
void run(Executor& exec, ActivationKind kind, bool gated, ConstTensorView dy, ConstTensorView x, TensorView out) {
  parallel_rows(exec, x.size(0), x.size(1), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(activation_rows)(kind, gated, dy, x, out, begin, end);
  });
}
}  // namespace

void activation_forward(Executor& exec, ActivationKind kind, ConstTensorView x, TensorView y) noexcept {
  run(exec, kind, false, {}, x, y);
}

void activation_backward(Executor& exec, ActivationKind kind, ConstTensorView dy, ConstTensorView x,
                         TensorView dx) noexcept {
  run(exec, kind, false, dy, x, dx);
}

void gated_activation_forward(Executor& exec, ActivationKind kind, ConstTensorView x, TensorView y) noexcept {
  run(exec, kind, true, {}, x, y);
}

void gated_activation_backward(Executor& exec, ActivationKind kind, ConstTensorView dy, ConstTensorView x,
                               TensorView dx) noexcept {
  run(exec, kind, true, dy, x, dx);
}

}  // namespace megatron::kernels::cpu
#endif
