#include "kernels/cpu/norm.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "base/rng.h"
#include "kernels/cpu/targets.inl"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/norm.cc"
#include <hwy/foreach_target.h>
// foreach_target.h first
#include <hwy/highway.h>

#include "kernels/cpu/vector_math.inl"

#ifndef MEGATRON_KERNELS_CPU_NORM_OPERANDS
#define MEGATRON_KERNELS_CPU_NORM_OPERANDS
namespace megatron::kernels::cpu {
namespace {
struct ForwardOperands {
  const float *x, *gamma, *beta;
  float* y;
  std::int64_t hidden;
  bool centred;
  double eps;
};

struct BackwardOperands {
  const float *dy, *x, *gamma;
  float* dx;
  float *dgamma, *dbeta;  // sums of this block of tokens; dbeta may be null
  std::int64_t hidden;
  bool centred;
  float mean, rstd;
};
}  // namespace
}  // namespace megatron::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {

// Writes the row; returns its mean and reciprocal deviation.
std::pair<float, float> norm_forward_row(const ForwardOperands& row) {
  const auto size = static_cast<double>(row.hidden);
  float mean = 0;
  if (row.centred) {
    LaneSum sum;
    for_each_lane_group(row.hidden, [&](std::int64_t i, auto part, std::int64_t valid)
                                        HWY_ATTR { sum.add(part, load_valid(row.x + i, valid)); });
    mean = static_cast<float>(sum.total() / size);
  }
  const V centre = set(mean);
  LaneSum squares;
  for_each_lane_group(row.hidden, [&](std::int64_t i, auto part, std::int64_t valid) HWY_ATTR {
    const V d = hn::Sub(load_valid(row.x + i, valid, mean), centre);
    squares.add_product(part, d, d);
  });
  const auto rstd = static_cast<float>(1.0 / std::sqrt(squares.total() / size + row.eps));
  const V scale = set(rstd);
  for_each_vector(row.hidden, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    const V normal = hn::Mul(hn::Sub(load_valid(row.x + i, valid), centre), scale);
    const V gamma = load_valid(row.gamma + i, valid);
    store_valid(row.beta == nullptr ? hn::Mul(normal, gamma) : fma(normal, gamma, load_valid(row.beta + i, valid)),
                row.y + i, valid);
  });
  return {mean, rstd};
}

void norm_forward_rows(const ForwardOperands& first, std::int64_t x_stride, std::int64_t y_stride, std::int64_t begin,
                       std::int64_t end, float* mean, float* rstd) {
  for (std::int64_t t = begin; t < end; ++t) {
    ForwardOperands row = first;
    row.x += t * x_stride;
    row.y += t * y_stride;
    const auto [centre, scale] = norm_forward_row(row);
    if (row.centred) mean[t] = centre;
    rstd[t] = scale;
  }
}

void norm_backward_row(const BackwardOperands& row) {
  const V centre = set(row.mean), scale = set(row.rstd);
  LaneSum sum, dot;
  for_each_lane_group(row.hidden, [&](std::int64_t i, auto part, std::int64_t valid) HWY_ATTR {
    const V normal = hn::Mul(hn::Sub(load_valid(row.x + i, valid, row.mean), centre), scale);
    const V dy = load_valid(row.dy + i, valid);
    const V scaled = hn::Mul(dy, load_valid(row.gamma + i, valid));
    if (row.centred) sum.add(part, scaled);
    dot.add_product(part, scaled, normal);
    store_valid(fma(dy, normal, load_valid(row.dgamma + i, valid)), row.dgamma + i, valid);
    if (row.dbeta != nullptr) store_valid(hn::Add(load_valid(row.dbeta + i, valid), dy), row.dbeta + i, valid);
  });
  const auto size = static_cast<double>(row.hidden);
  const V mean_grad = set(row.centred ? static_cast<float>(sum.total() / size) : 0.0F);
  const V mean_dot = set(static_cast<float>(dot.total() / size));
  for_each_vector(row.hidden, [&](std::int64_t i, std::int64_t valid) HWY_ATTR {
    const V normal = hn::Mul(hn::Sub(load_valid(row.x + i, valid), centre), scale);
    const V scaled = hn::Mul(load_valid(row.dy + i, valid), load_valid(row.gamma + i, valid));
    store_valid(hn::Mul(scale, fnma(normal, mean_dot, hn::Sub(scaled, mean_grad))), row.dx + i, valid);
  });
}

void norm_backward_rows(const BackwardOperands& first, std::int64_t dy_stride, std::int64_t x_stride,
                        std::int64_t dx_stride, const float* mean, const float* rstd, std::int64_t begin,
                        std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    BackwardOperands row = first;
    row.dy += t * dy_stride;
    row.x += t * x_stride;
    row.dx += t * dx_stride;
    row.mean = row.centred ? mean[t] : 0.0F;
    row.rstd = rstd[t];
    norm_backward_row(row);
  }
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
  const ForwardOperands first{x.data<float>(),
                              gamma.data<float>(),
                              beta.num_dims() == 0 ? nullptr : beta.data<float>(),
                              y.data<float>(),
                              x.size(1),
                              centred,
                              eps};
  float* means = centred ? mean.data<float>() : nullptr;
  parallel_rows(exec, x.size(0), x.size(1), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_forward_rows)(first, x.stride(0), y.stride(0), begin, end, means, rstd.data<float>());
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
    BackwardOperands first{dy.data<float>(),
                           x.data<float>(),
                           gamma.data<float>(),
                           dx.data<float>(),
                           parts + block * hidden,
                           has_beta ? beta_parts + block * hidden : nullptr,
                           hidden,
                           centred,
                           0,
                           0};
    std::fill_n(first.dgamma, hidden, 0.0F);
    if (has_beta) std::fill_n(first.dbeta, hidden, 0.0F);
    HWY_DYNAMIC_DISPATCH(norm_backward_rows)
    (first, dy.stride(0), x.stride(0), dx.stride(0), centred ? mean.data<float>() : nullptr, rstd.data<float>(),
     block * kTokenBlock, std::min(rows, (block + 1) * kTokenBlock));
  });
  add_tree_of_rows(exec, parts, blocks, hidden, dgamma.data<float>());
  if (has_beta) add_tree_of_rows(exec, beta_parts, blocks, hidden, dbeta.data<float>());
}

}  // namespace megatron::kernels::cpu
#endif
