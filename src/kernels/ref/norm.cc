#include "kernels/ref/norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/units.h"
#include "kernels/ref/tree.h"

namespace megatron::kernels::ref {

template <typename T>
void norm_forward(Executor&, NormKind kind, ConstTensorView x, ConstTensorView gamma, ConstTensorView beta, double eps,
                  TensorView y, TensorView mean, TensorView rstd) {
  const std::int64_t rows = x.size(0), hidden = x.size(1);
  const T* g = gamma.data<T>();
  const T* b = beta.num_dims() == 0 ? nullptr : beta.data<T>();
  const bool centred = kind == NormKind::layer_norm;
  for (std::int64_t t = 0; t < rows; ++t) {
    const T* in = x.data<T>() + t * x.stride(0);
    T* out = y.data<T>() + t * y.stride(0);
    double sum = 0, squares = 0;
    if (centred)
      for (std::int64_t h = 0; h < hidden; ++h) sum += static_cast<double>(in[h]);
    const T centre = static_cast<T>(sum / static_cast<double>(hidden));
    for (std::int64_t h = 0; h < hidden; ++h) {
      const double d = static_cast<double>(in[h] - centre);
      squares += d * d;
    }
    const T scale = static_cast<T>(1.0 / std::sqrt(squares / static_cast<double>(hidden) + eps));
    if (centred) mean.data<T>()[t] = centre;
    rstd.data<T>()[t] = scale;
    for (std::int64_t h = 0; h < hidden; ++h) out[h] = (in[h] - centre) * scale * g[h] + (b == nullptr ? T{0} : b[h]);
  }
}

template <typename T>
void norm_backward(Executor&, NormKind kind, ConstTensorView dy, ConstTensorView x, ConstTensorView gamma,
                   ConstTensorView mean, ConstTensorView rstd, TensorView dx, TensorView dgamma, TensorView dbeta) {
  const std::int64_t rows = x.size(0), hidden = x.size(1);
  const bool centred = kind == NormKind::layer_norm;
  const bool has_beta = dbeta.num_dims() != 0;
  const T* g = gamma.data<T>();
  const std::int64_t blocks = ceil_div(rows, 64);
  std::vector<T> gamma_parts(static_cast<std::size_t>(blocks * hidden)), beta_parts(gamma_parts.size());
  for (std::int64_t t = 0; t < rows; ++t) {
    const T* in = x.data<T>() + t * x.stride(0);
    const T* grad = dy.data<T>() + t * dy.stride(0);
    T* out = dx.data<T>() + t * dx.stride(0);
    T* gamma_part = gamma_parts.data() + t / 64 * hidden;
    T* beta_part = beta_parts.data() + t / 64 * hidden;
    const T centre = centred ? mean.data<T>()[t] : T{0};
    const T scale = rstd.data<T>()[t];
    double sum = 0, dot = 0;
    for (std::int64_t h = 0; h < hidden; ++h) {
      const T normal = (in[h] - centre) * scale;
      const T scaled = grad[h] * g[h];
      sum += static_cast<double>(scaled);
      dot += static_cast<double>(scaled) * static_cast<double>(normal);
      gamma_part[h] += grad[h] * normal;
      beta_part[h] += grad[h];
    }
    const T mean_grad = centred ? static_cast<T>(sum / static_cast<double>(hidden)) : T{0};
    const T mean_dot = static_cast<T>(dot / static_cast<double>(hidden));
    for (std::int64_t h = 0; h < hidden; ++h)
      out[h] = scale * (grad[h] * g[h] - mean_grad - (in[h] - centre) * scale * mean_dot);
  }
  add_tree_of_rows(gamma_parts.data(), blocks, hidden, dgamma.data<T>());
  if (has_beta) add_tree_of_rows(beta_parts.data(), blocks, hidden, dbeta.data<T>());
}

template void norm_forward<float>(Executor&, NormKind, ConstTensorView, ConstTensorView, ConstTensorView, double,
                                  TensorView, TensorView, TensorView);
template void norm_forward<double>(Executor&, NormKind, ConstTensorView, ConstTensorView, ConstTensorView, double,
                                   TensorView, TensorView, TensorView);
template void norm_backward<float>(Executor&, NormKind, ConstTensorView, ConstTensorView, ConstTensorView,
                                   ConstTensorView, ConstTensorView, TensorView, TensorView, TensorView);
template void norm_backward<double>(Executor&, NormKind, ConstTensorView, ConstTensorView, ConstTensorView,
                                    ConstTensorView, ConstTensorView, TensorView, TensorView, TensorView);

}  // namespace megatron::kernels::ref
