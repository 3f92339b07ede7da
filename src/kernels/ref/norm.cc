#include "kernels/ref/norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/units.h"
#include "kernels/ref/tree.h"

namespace megatron::kernels::ref {

void norm_forward(Executor&, NormKind kind, ConstTensorView x, ConstTensorView gamma, ConstTensorView beta, double eps,
                  TensorView y, TensorView mean, TensorView rstd) {
  const std::int64_t rows = x.size(0), hidden = x.size(1);
  const double* g = gamma.data<double>();
  const double* b = beta.num_dims() == 0 ? nullptr : beta.data<double>();
  const bool centred = kind == NormKind::layer_norm;
  for (std::int64_t t = 0; t < rows; ++t) {
    const double* in = x.data<double>() + t * x.stride(0);
    double* out = y.data<double>() + t * y.stride(0);
    double sum = 0, squares = 0;
    if (centred)
      for (std::int64_t h = 0; h < hidden; ++h) sum += (in[h]);
    const double centre = (sum / (hidden));
    for (std::int64_t h = 0; h < hidden; ++h) {
      const double d = (in[h] - centre);
      squares += d * d;
    }
    const double scale = (1.0 / std::sqrt(squares / (hidden) + eps));
    if (centred) mean.data<double>()[t] = centre;
    rstd.data<double>()[t] = scale;
    for (std::int64_t h = 0; h < hidden; ++h) out[h] = (in[h] - centre) * scale * g[h] + (b == nullptr ? 0.0 : b[h]);
  }
}

void norm_backward(Executor&, NormKind kind, ConstTensorView dy, ConstTensorView x, ConstTensorView gamma,
                   ConstTensorView mean, ConstTensorView rstd, TensorView dx, TensorView dgamma, TensorView dbeta) {
  const std::int64_t rows = x.size(0), hidden = x.size(1);
  const bool centred = kind == NormKind::layer_norm;
  const bool has_beta = dbeta.num_dims() != 0;
  const double* g = gamma.data<double>();
  const std::int64_t blocks = ceil_div(rows, 64);
  std::vector<double> gamma_parts(static_cast<std::size_t>(blocks * hidden)), beta_parts(gamma_parts.size());
  for (std::int64_t t = 0; t < rows; ++t) {
    const double* in = x.data<double>() + t * x.stride(0);
    const double* grad = dy.data<double>() + t * dy.stride(0);
    double* out = dx.data<double>() + t * dx.stride(0);
    double* gamma_part = gamma_parts.data() + t / 64 * hidden;
    double* beta_part = beta_parts.data() + t / 64 * hidden;
    const double centre = centred ? mean.data<double>()[t] : 0.0;
    const double scale = rstd.data<double>()[t];
    double sum = 0, dot = 0;
    for (std::int64_t h = 0; h < hidden; ++h) {
      const double normal = (in[h] - centre) * scale;
      const double scaled = grad[h] * g[h];
      sum += (scaled);
      dot += (scaled) * (normal);
      gamma_part[h] += grad[h] * normal;
      beta_part[h] += grad[h];
    }
    const double mean_grad = centred ? (sum / (hidden)) : 0.0;
    const double mean_dot = (dot / (hidden));
    for (std::int64_t h = 0; h < hidden; ++h)
      out[h] = scale * (grad[h] * g[h] - mean_grad - (in[h] - centre) * scale * mean_dot);
  }
  add_tree_of_rows(gamma_parts.data(), blocks, hidden, dgamma.data<double>());
  if (has_beta) add_tree_of_rows(beta_parts.data(), blocks, hidden, dbeta.data<double>());
}

}  // namespace megatron::kernels::ref
