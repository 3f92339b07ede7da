#include "kernels/cpu/optimizer_variants.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/float16.h"
#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/optimizer_variants.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"
// behind vector_math.inl
#include "kernels/cpu/element_types.inl"

#ifndef MEGATRON_KERNELS_CPU_OPTIMIZER_VARIANTS_OPERANDS
#define MEGATRON_KERNELS_CPU_OPTIMIZER_VARIANTS_OPERANDS
namespace megatron::kernels::cpu {
namespace {
struct AdamL2Factors {
  float lr, beta1, beta2, rest1, rest2, eps, decay, correct1, correct2, grad_scale;
};
struct NesterovFactors {
  float lr, momentum, decay, grad_scale;
  bool first;
};
struct LionFactors {
  float lr, beta1, beta2, rest1, rest2, decay, grad_scale;
};
}  // namespace
}  // namespace megatron::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

template <typename T>
void adam_l2_piece_of(const AdamL2Factors& f, float* p, const float* g, float* m, float* v, T* rounded,
                      std::int64_t count) {
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    const V weight = load_valid(p + i, valid);
    const V grad = fma(set(f.decay), weight, hn::Mul(set(f.grad_scale), load_valid(g + i, valid)));
    const V first = fma(set(f.beta1), load_valid(m + i, valid), hn::Mul(set(f.rest1), grad));
    const V second = fma(set(f.beta2), load_valid(v + i, valid), hn::Mul(set(f.rest2), hn::Mul(grad, grad)));
    const V root = hn::Add(hn::Sqrt(hn::Mul(second, set(f.correct2))), set(f.eps));
    store_valid(first, m + i, valid);
    store_valid(second, v + i, valid);
    store_weights(fnma(set(f.lr), hn::Div(hn::Mul(first, set(f.correct1)), root), weight), p, rounded, i, valid);
  });
}

void adam_l2_piece(const AdamL2Factors& f, float* p, const float* g, float* m, float* v, DType dtype, void* rounded,
                   std::int64_t count) {
  with_type(dtype,
            [&](auto type) HWY_ATTR { adam_l2_piece_of(f, p, g, m, v, static_cast<decltype(type)*>(rounded), count); });
}

template <typename T>
void nesterov_piece_of(const NesterovFactors& f, float* p, const float* g, float* buf, T* rounded, std::int64_t count) {
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    const V weight = load_valid(p + i, valid);
    const V grad = fma(set(f.decay), weight, hn::Mul(set(f.grad_scale), load_valid(g + i, valid)));
    const V history = f.first ? grad : fma(set(f.momentum), load_valid(buf + i, valid), grad);
    store_valid(history, buf + i, valid);
    store_weights(fnma(set(f.lr), fma(set(f.momentum), history, grad), weight), p, rounded, i, valid);
  });
}

void nesterov_piece(const NesterovFactors& f, float* p, const float* g, float* buf, DType dtype, void* rounded,
                    std::int64_t count) {
  with_type(dtype,
            [&](auto type) HWY_ATTR { nesterov_piece_of(f, p, g, buf, static_cast<decltype(type)*>(rounded), count); });
}

template <typename T>
void lion_piece_of(const LionFactors& f, float* p, const float* g, float* m, T* rounded, std::int64_t count) {
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    const V weight = load_valid(p + i, valid), first = load_valid(m + i, valid);
    const V grad = hn::Mul(set(f.grad_scale), load_valid(g + i, valid));
    const V mixed = fma(set(f.beta1), first, hn::Mul(set(f.rest1), grad));
    const V sign = hn::IfThenElseZero(hn::Ne(mixed, set(0)), hn::CopySign(set(1), mixed));
    store_valid(fma(set(f.beta2), first, hn::Mul(set(f.rest2), grad)), m + i, valid);
    store_weights(fnma(set(f.lr), fma(set(f.decay), weight, sign), weight), p, rounded, i, valid);
  });
}

void lion_piece(const LionFactors& f, float* p, const float* g, float* m, DType dtype, void* rounded,
                std::int64_t count) {
  with_type(dtype,
            [&](auto type) HWY_ATTR { lion_piece_of(f, p, g, m, static_cast<decltype(type)*>(rounded), count); });
}

template <typename T>
void weighted_sum_piece_of(float a, const float* x, float b, const float* y, float* out, T* rounded,
                           std::int64_t count) {
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    V sum = hn::Mul(set(a), load_valid(x + i, valid));
    if (y != nullptr) sum = fma(set(b), load_valid(y + i, valid), sum);
    store_weights(sum, out, rounded, i, valid);
  });
}

void weighted_sum_piece(float a, const float* x, float b, const float* y, float* out, DType dtype, void* rounded,
                        std::int64_t count) {
  with_type(dtype, [&](auto type) HWY_ATTR {
    weighted_sum_piece_of(a, x, b, y, out, static_cast<decltype(type)*>(rounded), count);
  });
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/cpu/elements.h"
#include "kernels/cpu/parallel_rows.h"

namespace megatron::kernels::cpu {

HWY_EXPORT(adam_l2_piece);
HWY_EXPORT(nesterov_piece);
HWY_EXPORT(lion_piece);
HWY_EXPORT(weighted_sum_piece);

void adam_l2_step(Executor& exec, const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v,
                  TensorView rounded) noexcept {
  const AdamL2Factors factors{static_cast<float>(step.lr),
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
    HWY_DYNAMIC_DISPATCH(adam_l2_piece)
    (factors, p.data<float>() + begin, g.data<float>() + begin, m.data<float>() + begin, v.data<float>() + begin,
     rounded.dtype, at_element_or_null(rounded, begin), end - begin);
  });
}

void sgd_nesterov_step(Executor& exec, const NesterovStep& step, TensorView p, ConstTensorView g, TensorView buf,
                       TensorView rounded) noexcept {
  const NesterovFactors factors{static_cast<float>(step.lr), static_cast<float>(step.momentum),
                                static_cast<float>(step.weight_decay), static_cast<float>(step.grad_scale), step.first};
  parallel_range(exec, p.numel(), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(nesterov_piece)
    (factors, p.data<float>() + begin, g.data<float>() + begin, buf.data<float>() + begin, rounded.dtype,
     at_element_or_null(rounded, begin), end - begin);
  });
}

void lion_step(Executor& exec, const LionStep& step, TensorView p, ConstTensorView g, TensorView m,
               TensorView rounded) noexcept {
  const LionFactors factors{static_cast<float>(step.lr),        static_cast<float>(step.beta1),
                            static_cast<float>(step.beta2),     static_cast<float>(1 - step.beta1),
                            static_cast<float>(1 - step.beta2), static_cast<float>(step.weight_decay),
                            static_cast<float>(step.grad_scale)};
  parallel_range(exec, p.numel(), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(lion_piece)
    (factors, p.data<float>() + begin, g.data<float>() + begin, m.data<float>() + begin, rounded.dtype,
     at_element_or_null(rounded, begin), end - begin);
  });
}

void weighted_sum(Executor& exec, double a, ConstTensorView x, double b, ConstTensorView y, TensorView out,
                  TensorView rounded) noexcept {
  const float* second = y.num_dims() == 0 ? nullptr : y.data<float>();
  parallel_range(exec, out.numel(), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(weighted_sum_piece)
    (static_cast<float>(a), x.data<float>() + begin, static_cast<float>(b),
     second == nullptr ? nullptr : second + begin, out.data<float>() + begin, rounded.dtype,
     at_element_or_null(rounded, begin), end - begin);
  });
}

}  // namespace megatron::kernels::cpu
#endif
