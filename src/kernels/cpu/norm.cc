#include "kernels/cpu/norm.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/float16.h"
#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"
// behind vector_math.inl
#include "kernels/cpu/element_types.inl"

#ifndef MEGATRON_KERNELS_CPU_NORM_OPERANDS
#define MEGATRON_KERNELS_CPU_NORM_OPERANDS
namespace megatron::kernels::cpu {
namespace {
struct ForwardOperands {
  DType x_type, type;  // of x; of gamma, beta, y
  const void *x, *gamma, *beta;
  void* y;
  std::int64_t hidden;
  bool centred;
  double eps;
};

struct BackwardOperands {
  DType x_type, type;  // of x and dx; of dy and gamma
  const void *dy, *x, *gamma;
  void* dx;
  float *dgamma, *dbeta;  // sums of this block of tokens; dbeta may be null
  std::int64_t hidden;
  bool centred;
};
}  // namespace
}  // namespace megatron::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

// Writes the row; returns its mean and reciprocal deviation.
template <typename X, typename T>
std::pair<float, float> norm_forward_row(const ForwardOperands& operands, const X* x, T* y) {
  const T *gamma = static_cast<const T*>(operands.gamma), *beta = static_cast<const T*>(operands.beta);
  const auto size = static_cast<double>(operands.hidden);
  float mean = 0;
  if (operands.centred) {
    LaneSum sum;
    for_each_lane_group(operands.hidden, [&](std::int64_t i, auto part, std::int64_t valid)
                                             HWY_ATTR { sum.add(part, load_valid(x + i, valid)); });
    mean = static_cast<float>(sum.total() / size);
  }
  const V centre = set(mean);
  LaneSum squares;
  for_each_lane_group(operands.hidden, [&](std::int64_t i, auto part, std::int64_t valid) HWY_ATTR {
    const V d = hn::Sub(load_valid(x + i, valid, mean), centre);
    squares.add_product(part, d, d);
  });
  const auto rstd = static_cast<float>(1.0 / std::sqrt(squares.total() / size + operands.eps));
  const V scale = set(rstd);
  for_each_vector(operands.hidden, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    const V normal = hn::Mul(hn::Sub(load_valid(x + i, valid), centre), scale);
    const V weight = load_valid(gamma + i, valid);
    store_valid(beta == nullptr ? hn::Mul(normal, weight) : fma(normal, weight, load_valid(beta + i, valid)), y + i,
                valid);
  });
  return {mean, rstd};
}

template <typename X, typename T>
void norm_forward_rows_of(const ForwardOperands& operands, std::int64_t x_stride, std::int64_t y_stride,
                          std::int64_t begin, std::int64_t end, float* mean, float* rstd) {
  for (std::int64_t t = begin; t < end; ++t) {
    const auto [centre, scale] = norm_forward_row(operands, static_cast<const X*>(operands.x) + t * x_stride,
                                                  static_cast<T*>(operands.y) + t * y_stride);
    if (operands.centred) mean[t] = centre;
    rstd[t] = scale;
  }
}

void norm_forward_rows(const ForwardOperands& operands, std::int64_t x_stride, std::int64_t y_stride,
                       std::int64_t begin, std::int64_t end, float* mean, float* rstd) {
  with_stream_types(operands.x_type, operands.type, [&](auto x, auto type) HWY_ATTR {
    norm_forward_rows_of<decltype(x), decltype(type)>(operands, x_stride, y_stride, begin, end, mean, rstd);
  });
}

template <typename X, typename T>
void norm_backward_row(const BackwardOperands& operands, const T* dy, const X* x, X* dx, float mean, float rstd) {
  const T* gamma = static_cast<const T*>(operands.gamma);
  float *dgamma = operands.dgamma, *dbeta = operands.dbeta;
  const V centre = set(mean), scale = set(rstd);
  LaneSum sum, dot;
  for_each_lane_group(operands.hidden, [&](std::int64_t i, auto part, std::int64_t valid) HWY_ATTR {
    const V normal = hn::Mul(hn::Sub(load_valid(x + i, valid, mean), centre), scale);
    const V grad = load_valid(dy + i, valid);
    const V scaled = hn::Mul(grad, load_valid(gamma + i, valid));
    if (operands.centred) sum.add(part, scaled);
    dot.add_product(part, scaled, normal);
    store_valid(fma(grad, normal, load_valid(dgamma + i, valid)), dgamma + i, valid);
    if (dbeta != nullptr) store_valid(hn::Add(load_valid(dbeta + i, valid), grad), dbeta + i, valid);
  });
  const auto size = static_cast<double>(operands.hidden);
  const V mean_grad = set(operands.centred ? static_cast<float>(sum.total() / size) : 0.0F);
  const V mean_dot = set(static_cast<float>(dot.total() / size));
  for_each_vector(operands.hidden, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    const V normal = hn::Mul(hn::Sub(load_valid(x + i, valid), centre), scale);
    const V scaled = hn::Mul(load_valid(dy + i, valid), load_valid(gamma + i, valid));
    store_valid(hn::Mul(scale, fnma(normal, mean_dot, hn::Sub(scaled, mean_grad))), dx + i, valid);
  });
}

template <typename X, typename T>
void norm_backward_rows_of(const BackwardOperands& operands, std::int64_t dy_stride, std::int64_t x_stride,
                           std::int64_t dx_stride, const float* mean, const float* rstd, std::int64_t begin,
                           std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t)
    norm_backward_row(operands, static_cast<const T*>(operands.dy) + t * dy_stride,
                      static_cast<const X*>(operands.x) + t * x_stride, static_cast<X*>(operands.dx) + t * dx_stride,
                      operands.centred ? mean[t] : 0.0F, rstd[t]);
}

void norm_backward_rows(const BackwardOperands& operands, std::int64_t dy_stride, std::int64_t x_stride,
                        std::int64_t dx_stride, const float* mean, const float* rstd, std::int64_t begin,
                        std::int64_t end) {
  with_stream_types(operands.x_type, operands.type, [&](auto x, auto type) HWY_ATTR {
    norm_backward_rows_of<decltype(x), decltype(type)>(operands, dy_stride, x_stride, dx_stride, mean, rstd, begin,
                                                       end);
  });
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/units.h"
#include "kernels/cpu/column_tree.h"
#include "kernels/cpu/parallel_rows.h"

namespace megatron::kernels::cpu {

HWY_EXPORT(norm_forward_rows);
HWY_EXPORT(norm_backward_rows);

void norm_forward(Executor& exec, NormKind kind, ConstTensorView x, ConstTensorView gamma, ConstTensorView beta,
                  double eps, TensorView y, TensorView mean, TensorView rstd) noexcept {
  const bool centred = kind == NormKind::layer_norm;
  const ForwardOperands operands{x.dtype,   y.dtype, x.pointer, gamma.pointer, beta.pointer, y.pointer,
                                 x.size(1), centred, eps};
  float* means = centred ? mean.data<float>() : nullptr;
  parallel_rows(exec, x.size(0), x.size(1), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_forward_rows)(operands, x.stride(0), y.stride(0), begin, end, means, rstd.data<float>());
  });
}

std::int64_t norm_backward_parts(std::int64_t rows, std::int64_t hidden) {
  return 2 * ceil_div(rows, kTokenBlock) * hidden;
}

void norm_backward(Executor& exec, NormKind kind, ConstTensorView dy, ConstTensorView x, ConstTensorView gamma,
                   ConstTensorView mean, ConstTensorView rstd, TensorView dx, TensorView dgamma, TensorView dbeta,
                   float* parts) noexcept {
  const std::int64_t rows = x.size(0), hidden = x.size(1), blocks = ceil_div(rows, kTokenBlock);
  const bool centred = kind == NormKind::layer_norm, has_beta = dbeta.num_dims() != 0;
  float* beta_parts = parts + blocks * hidden;
  exec.parallel_for(blocks, [&](std::int64_t block, int) {
    const BackwardOperands operands{x.dtype,
                                    dy.dtype,
                                    dy.pointer,
                                    x.pointer,
                                    gamma.pointer,
                                    dx.pointer,
                                    parts + block * hidden,
                                    has_beta ? beta_parts + block * hidden : nullptr,
                                    hidden,
                                    centred};
    std::fill_n(operands.dgamma, hidden, 0.0F);
    if (has_beta) std::fill_n(operands.dbeta, hidden, 0.0F);
    HWY_DYNAMIC_DISPATCH(norm_backward_rows)
    (operands, dy.stride(0), x.stride(0), dx.stride(0), centred ? mean.data<float>() : nullptr, rstd.data<float>(),
     block * kTokenBlock, std::min(rows, (block + 1) * kTokenBlock));
  });
  add_tree_of_rows(exec, parts, blocks, hidden, dgamma.data<float>());
  if (has_beta) add_tree_of_rows(exec, beta_parts, blocks, hidden, dbeta.data<float>());
}

}  // namespace megatron::kernels::cpu
#endif
