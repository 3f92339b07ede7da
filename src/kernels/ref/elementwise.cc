#include "kernels/ref/elementwise.h"

#include <vector>

#include "base/units.h"
#include "kernels/dropout_mask.h"
#include "kernels/ref/tree.h"
#include "kernels/row_walk.h"

namespace megatron::kernels::ref {

void add_in_place(Executor& exec, ConstTensorView src, TensorView dst) {
  const double* from = src.data<double>();
  double* to = dst.data<double>();
  RowWalk<2>(src.shape, {src.strides, dst.strides}).for_each_piece(exec, [&](const auto& at, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[at[1] + i] += from[at[0] + i];
  });
}

void add_bias(ConstTensorView bias, TensorView y) {
  const double* b = bias.data<double>();
  for (std::int64_t t = 0; t < y.size(0); ++t) {
    double* out = y.data<double>() + t * y.stride(0);
    for (std::int64_t h = 0; h < y.size(1); ++h) out[h] += b[h];
  }
}

void bias_grad(ConstTensorView dy, TensorView grad) {
  const std::int64_t rows = dy.size(0), hidden = dy.size(1), blocks = ceil_div(rows, 64);
  std::vector<double> parts(static_cast<std::size_t>(blocks * hidden));
  for (std::int64_t t = 0; t < rows; ++t) {
    const double* in = dy.data<double>() + t * dy.stride(0);
    double* part = parts.data() + t / 64 * hidden;
    for (std::int64_t h = 0; h < hidden; ++h) part[h] += in[h];
  }
  add_tree_of_rows(parts.data(), blocks, hidden, grad.data<double>());
}

void bias_dropout_add(ConstTensorView x, ConstTensorView bias, ConstTensorView residual, const DropoutSpec& dropout,
                      RowPositions rows, TensorView y) {
  const double* b = bias.num_dims() == 0 ? nullptr : bias.data<double>();
  const bool drops = dropout.probability > 0;
  const std::uint32_t threshold = dropout_threshold(dropout.probability);
  const double scale = (1.0 / (1.0 - dropout.probability));
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    const double* in = x.data<double>() + t * x.stride(0);
    const double* base = residual.num_dims() == 0 ? nullptr : residual.data<double>() + t * residual.stride(0);
    double* out = y.data<double>() + t * y.stride(0);
    for (std::int64_t h = 0; h < x.size(1); ++h) {
      double value = b == nullptr ? in[h] : in[h] + b[h];
      if (drops) {
        const std::int64_t feature = dropout.first_feature + h;
        const auto words =
            philox4x32(dropout.key, hidden_dropout_counter(rows.sample_index[t], rows.position[t], feature / 4));
        value = dropout_keeps(words, feature, threshold) ? value * scale : 0.0;
      }
      out[h] = base == nullptr ? value : base[h] + value;
    }
  }
}

}  // namespace megatron::kernels::ref
