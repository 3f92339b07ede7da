#include "kernels/ref/activation.h"

#include <cmath>

namespace megatron::kernels::ref {

namespace {
constexpr double kSqrt2OverPi = 0.79788456080286535588;  // √(2/π)
constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kInvSqrt2Pi = 0.39894228040143267794;  // 1/√(2π)
constexpr double kCubic = 0.044715;

double value(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x)));
    case ActivationKind::gelu_erf:
      return 0.5 * x * std::erfc(-x * kSqrtHalf);
    case ActivationKind::squared_relu:
      return x > 0 ? x * x : x * 0;  // x·0 keeps NaN
    case ActivationKind::silu:
      return x / (1 + std::exp(-x));
  }
  return 0;
}

double slope(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::gelu_tanh: {
      const double t = std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * kCubic * x * x);
    }
    case ActivationKind::gelu_erf:
      return 0.5 * std::erfc(-x * kSqrtHalf) + x * kInvSqrt2Pi * std::exp(-0.5 * x * x);
    case ActivationKind::squared_relu:
      return x > 0 ? 2 * x : x * 0;
    case ActivationKind::silu: {
      const double s = 1 / (1 + std::exp(-x));
      return s * (1 + x * (1 - s));
    }
  }
  return 0;
}
}  // namespace

void activation_forward(ActivationKind kind, ConstTensorView x, TensorView y) {
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    const double* in = x.data<double>() + t * x.stride(0);
    double* out = y.data<double>() + t * y.stride(0);
    for (std::int64_t f = 0; f < x.size(1); ++f) out[f] = (value(kind, in[f]));
  }
}

void activation_backward(ActivationKind kind, ConstTensorView dy, ConstTensorView x, TensorView dx) {
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    const double* grad = dy.data<double>() + t * dy.stride(0);
    const double* in = x.data<double>() + t * x.stride(0);
    double* out = dx.data<double>() + t * dx.stride(0);
    for (std::int64_t f = 0; f < x.size(1); ++f) out[f] = (grad[f] * slope(kind, in[f]));
  }
}

void gated_activation_forward(ActivationKind kind, ConstTensorView x, TensorView y) {
  const std::int64_t width = y.size(1);
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    const double* gate = x.data<double>() + t * x.stride(0);
    double* out = y.data<double>() + t * y.stride(0);
    for (std::int64_t f = 0; f < width; ++f) out[f] = (value(kind, gate[f]) * gate[width + f]);
  }
}

void gated_activation_backward(ActivationKind kind, ConstTensorView dy, ConstTensorView x, TensorView dx) {
  const std::int64_t width = dy.size(1);
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    const double* grad = dy.data<double>() + t * dy.stride(0);
    const double* in = x.data<double>() + t * x.stride(0);
    double* out = dx.data<double>() + t * dx.stride(0);
    for (std::int64_t f = 0; f < width; ++f) {
      const double gate = in[f], up = in[width + f];
      out[f] = (grad[f] * up * slope(kind, gate));
      out[width + f] = (grad[f] * value(kind, gate));
    }
  }
}

}  // namespace megatron::kernels::ref
