#include "kernels/ref/optimizer_step.h"

#include <algorithm>
#include <cmath>

namespace megatron::kernels::ref {

template <typename T>
void adamw_step(const AdamStep& step, TensorView p, ConstTensorView g, TensorView m, TensorView v) {
  const auto lr = static_cast<T>(step.lr), eps = static_cast<T>(step.eps), decay = static_cast<T>(step.weight_decay);
  const auto beta1 = static_cast<T>(step.beta1), beta2 = static_cast<T>(step.beta2);
  const auto rest1 = static_cast<T>(1 - step.beta1), rest2 = static_cast<T>(1 - step.beta2);
  const auto correct1 = static_cast<T>(1 / step.bias_correction1);
  const auto correct2 = static_cast<T>(1 / step.bias_correction2);
  const auto grad_scale = static_cast<T>(step.grad_scale);
  const T* grad = g.data<T>();
  for (std::int64_t i = 0; i < p.numel(); ++i) {
    const T scaled = grad_scale * grad[i];
    T& first = m.data<T>()[i];
    T& second = v.data<T>()[i];
    T& weight = p.data<T>()[i];
    first = beta1 * first + rest1 * scaled;
    second = beta2 * second + rest2 * (scaled * scaled);
    const T update = first * correct1 / (std::sqrt(second * correct2) + eps);
    weight -= lr * (update + decay * weight);
  }
}

template <typename T>
void sgd_step(const SgdStep& step, TensorView p, ConstTensorView g, TensorView buf) {
  const auto lr = static_cast<T>(step.lr), momentum = static_cast<T>(step.momentum);
  const auto decay = static_cast<T>(step.weight_decay), grad_scale = static_cast<T>(step.grad_scale);
  T* history = buf.num_dims() == 0 ? nullptr : buf.data<T>();
  for (std::int64_t i = 0; i < p.numel(); ++i) {
    T& weight = p.data<T>()[i];
    T change = grad_scale * g.data<T>()[i] + decay * weight;
    if (history != nullptr) {
      change = step.first ? change : momentum * history[i] + change;
      history[i] = change;
    }
    weight -= lr * change;
  }
}

template <typename T>
void add_squared_norm(ConstTensorView x, ExactSum& sum) {
  const T* in = x.data<T>();
  for (std::int64_t begin = 0; begin < x.numel(); begin += 64) {
    double squares = 0;
    for (std::int64_t i = begin; i < std::min(x.numel(), begin + 64); ++i)
      squares += static_cast<double>(in[i]) * static_cast<double>(in[i]);
    sum.add(squares);
  }
}

template <typename T>
bool all_finite(ConstTensorView x) {
  const T* in = x.data<T>();
  return std::all_of(in, in + x.numel(), [](T value) { return std::isfinite(value); });
}

template <typename T>
std::int64_t count_zeros(ConstTensorView x) {
  const T* in = x.data<T>();
  return std::count(in, in + x.numel(), T{0});
}

template void adamw_step<float>(const AdamStep&, TensorView, ConstTensorView, TensorView, TensorView);
template void adamw_step<double>(const AdamStep&, TensorView, ConstTensorView, TensorView, TensorView);
template void sgd_step<float>(const SgdStep&, TensorView, ConstTensorView, TensorView);
template void sgd_step<double>(const SgdStep&, TensorView, ConstTensorView, TensorView);
template void add_squared_norm<float>(ConstTensorView, ExactSum&);
template void add_squared_norm<double>(ConstTensorView, ExactSum&);
template bool all_finite<float>(ConstTensorView);
template bool all_finite<double>(ConstTensorView);
template std::int64_t count_zeros<float>(ConstTensorView);
template std::int64_t count_zeros<double>(ConstTensorView);

}  // namespace megatron::kernels::ref
