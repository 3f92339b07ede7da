#include "kernels/ref/optimizer_step.h"

#include <algorithm>
#include <cmath>

namespace megatron::kernels::ref {

void adamw_step(const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v) {
  const auto lr = (step.lr), eps = (step.eps), decay = (step.weight_decay);
  const auto beta1 = (step.beta1), beta2 = (step.beta2);
  const auto rest1 = (1 - step.beta1), rest2 = (1 - step.beta2);
  const auto correct1 = (1 / step.bias_correction1);
  const auto correct2 = (1 / step.bias_correction2);
  const auto grad_scale = (step.grad_scale);
  const double* grad = g.data<double>();
  for (std::int64_t i = 0; i < p.numel(); ++i) {
    const double scaled = grad_scale * grad[i];
    double& first = m.data<double>()[i];
    double& second = v.data<double>()[i];
    double& weight = p.data<double>()[i];
    first = beta1 * first + rest1 * scaled;
    second = beta2 * second + rest2 * (scaled * scaled);
    const double update = first * correct1 / (std::sqrt(second * correct2) + eps);
    weight -= lr * (update + decay * weight);
  }
}

void sgd_step(const SgdStep& step, TensorView p, ConstTensorView g, TensorView buf) {
  const auto lr = (step.lr), momentum = (step.momentum);
  const auto decay = (step.weight_decay), grad_scale = (step.grad_scale);
  double* history = buf.num_dims() == 0 ? nullptr : buf.data<double>();
  for (std::int64_t i = 0; i < p.numel(); ++i) {
    double& weight = p.data<double>()[i];
    double change = grad_scale * g.data<double>()[i] + decay * weight;
    if (history != nullptr) {
      change = step.first ? change : momentum * history[i] + change;
      history[i] = change;
    }
    weight -= lr * change;
  }
}

void add_squared_norm(ConstTensorView x, ExactSum& sum) {
  const double* in = x.data<double>();
  for (std::int64_t begin = 0; begin < x.numel(); begin += kNormSegment) {
    double squares = 0;
    for (std::int64_t i = begin; i < std::min(x.numel(), begin + kNormSegment); ++i) squares += (in[i]) * (in[i]);
    sum.add(squares);
  }
}

bool all_finite(ConstTensorView x) {
  const double* in = x.data<double>();
  return std::all_of(in, in + x.numel(), [](double value) { return std::isfinite(value); });
}

std::int64_t count_zeros(ConstTensorView x) {
  const double* in = x.data<double>();
  return std::count(in, in + x.numel(), 0.0);
}

}  // namespace megatron::kernels::ref
