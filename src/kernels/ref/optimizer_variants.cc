#include "kernels/ref/optimizer_variants.h"

#include <cmath>

#include "kernels/checks.h"

namespace megatron::kernels::ref {

void adam_l2_step(const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v) {
  for (std::int64_t i = 0; i < p.numel(); ++i) {
    double& first = m.data<double>()[i];
    double& second = v.data<double>()[i];
    double& weight = p.data<double>()[i];
    const double grad = step.grad_scale * g.data<double>()[i] + step.weight_decay * weight;
    first = step.beta1 * first + (1 - step.beta1) * grad;
    second = step.beta2 * second + (1 - step.beta2) * (grad * grad);
    weight -= step.lr * (first / step.bias_correction1) / (std::sqrt(second / step.bias_correction2) + step.eps);
  }
}

void sgd_nesterov_step(const NesterovStep& step, TensorView p, ConstTensorView g, TensorView buf) {
  for (std::int64_t i = 0; i < p.numel(); ++i) {
    double& history = buf.data<double>()[i];
    double& weight = p.data<double>()[i];
    const double grad = step.grad_scale * g.data<double>()[i] + step.weight_decay * weight;
    history = step.first ? grad : step.momentum * history + grad;
    weight -= step.lr * (grad + step.momentum * history);
  }
}

void lion_step(const LionStep& step, TensorView p, ConstTensorView g, TensorView m) {
  for (std::int64_t i = 0; i < p.numel(); ++i) {
    const double grad = step.grad_scale * g.data<double>()[i];
    double& first = m.data<double>()[i];
    double& weight = p.data<double>()[i];
    const double mixed = step.beta1 * first + (1 - step.beta1) * grad;
    const double sign = mixed > 0 ? 1.0 : mixed < 0 ? -1.0 : 0.0;
    weight -= step.lr * (sign + step.weight_decay * weight);
    first = step.beta2 * first + (1 - step.beta2) * grad;
  }
}

void weighted_sum(double a, ConstTensorView x, double b, ConstTensorView y, TensorView out) {
  const bool alone = is_null(y);
  for (std::int64_t i = 0; i < out.numel(); ++i)
    out.data<double>()[i] = a * x.data<double>()[i] + (alone ? 0.0 : b * y.data<double>()[i]);
}

}  // namespace megatron::kernels::ref
