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

// f(x), and with kSlope also f'(x).
template <ActivationKind kKind, bool kSlope>
HWY_INLINE V activate(V x, V& slope) {
  if constexpr (kKind == ActivationKind::gelu_tanh) {
    // ½·(1 + tanh u) = σ(2u)
    const V square = hn::Mul(x, x);
    const V u2 = hn::Mul(x, fma(square, set(0.0713548162726F), set(1.59576912161F)));
    V rest;
    const V s = sigmoid(u2, rest);
    if constexpr (kSlope) {
      const V du2 = fma(square, set(0.214064448818F), set(1.59576912161F));
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
    V rest;
    const V s = sigmoid(x, rest);
    if constexpr (kSlope) slope = fma(hn::Mul(x, s), rest, s);
    return hn::Mul(x, s);
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
  for_each_vector(row.width, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    V slope;
    store_valid(activate<kKind, false>(load_valid(row.x + i, valid), slope), row.out + i, valid);
  });
}

template <ActivationKind kKind, typename T>
void backward_row(const Row<T>& row) {
  for_each_vector(row.width, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    V slope;
    activate<kKind, true>(load_valid(row.x + i, valid), slope);
    store_valid(hn::Mul(load_valid(row.dy + i, valid), slope), row.out + i, valid);
  });
}

template <ActivationKind kKind, typename T>
void gated_forward_row(const Row<T>& row) {
  for_each_vector(row.width, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    V slope;
    const V y = activate<kKind, false>(load_valid(row.x + i, valid), slope);
    store_valid(hn::Mul(y, load_valid(row.x + row.width + i, valid)), row.out + i, valid);
  });
}

template <ActivationKind kKind, typename T>
void gated_backward_row(const Row<T>& row) {
  for_each_vector(row.width, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    V slope;
    const V dy = load_valid(row.dy + i, valid);
    const V up = load_valid(row.x + row.width + i, valid);
    const V y = activate<kKind, true>(load_valid(row.x + i, valid), slope);
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
