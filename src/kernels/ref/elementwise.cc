#include "kernels/ref/elementwise.h"

#include <vector>

#include "base/units.h"
#include "kernels/dropout_mask.h"
#include "kernels/ref/tree.h"
#include "kernels/row_walk.h"

namespace megatron::kernels::ref {

template <typename T>
void add_in_place(Executor& exec, ConstTensorView src, TensorView dst) {
  const T* from = src.data<T>();
  T* to = dst.data<T>();
  RowWalk<2>(src.shape, {src.strides, dst.strides}).for_each_piece(exec, [&](const auto& at, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[at[1] + i] += from[at[0] + i];
  });
}

template <typename T>
void scale_in_place(Executor& exec, double factor, TensorView dst) {
  T* to = dst.data<T>();
  const T scale = static_cast<T>(factor);
  RowWalk<1>(dst.shape, {dst.strides}).for_each_piece(exec, [&](const auto& at, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[at[0] + i] *= scale;
  });
}

template <typename T>
void add_bias(ConstTensorView bias, TensorView y) {
  const T* b = bias.data<T>();
  for (std::int64_t t = 0; t < y.size(0); ++t) {
    T* out = y.data<T>() + t * y.stride(0);
    for (std::int64_t h = 0; h < y.size(1); ++h) out[h] += b[h];
  }
}

template <typename T>
void bias_grad(ConstTensorView dy, TensorView grad) {
  const std::int64_t rows = dy.size(0), hidden = dy.size(1), blocks = ceil_div(rows, 64);
  std::vector<T> parts(static_cast<std::size_t>(blocks * hidden));
  for (std::int64_t t = 0; t < rows; ++t) {
    const T* in = dy.data<T>() + t * dy.stride(0);
    T* part = parts.data() + t / 64 * hidden;
    for (std::int64_t h = 0; h < hidden; ++h) part[h] += in[h];
  }
  add_tree_of_rows(parts.data(), blocks, hidden, grad.data<T>());
}

template <typename T>
void bias_dropout_add(ConstTensorView x, ConstTensorView bias, ConstTensorView residual, const DropoutSpec& dropout,
                      RowPositions rows, TensorView y) {
  const T* b = bias.num_dims() == 0 ? nullptr : bias.data<T>();
  const bool drops = dropout.probability > 0;
  const std::uint32_t threshold = dropout_threshold(dropout.probability);
  const T scale = static_cast<T>(1.0 / (1.0 - dropout.probability));
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    const T* in = x.data<T>() + t * x.stride(0);
    const T* base = residual.num_dims() == 0 ? nullptr : residual.data<T>() + t * residual.stride(0);
    T* out = y.data<T>() + t * y.stride(0);
    for (std::int64_t h = 0; h < x.size(1); ++h) {
      T value = b == nullptr ? in[h] : in[h] + b[h];
      if (drops) {
        const std::int64_t feature = dropout.first_feature + h;
        const auto words =
            philox4x32(dropout.key, hidden_dropout_counter(rows.sample_index[t], rows.position[t], feature / 4));
        value = dropout_keeps(words, feature, threshold) ? value * scale : T{0};
      }
      out[h] = base == nullptr ? value : base[h] + value;
    }
  }
}

template void add_in_place<float>(Executor&, ConstTensorView, TensorView);
template void add_in_place<double>(Executor&, ConstTensorView, TensorView);
template void scale_in_place<float>(Executor&, double, TensorView);
template void scale_in_place<double>(Executor&, double, TensorView);
template void add_bias<float>(ConstTensorView, TensorView);
template void add_bias<double>(ConstTensorView, TensorView);
template void bias_grad<float>(ConstTensorView, TensorView);
template void bias_grad<double>(ConstTensorView, TensorView);
template void bias_dropout_add<float>(ConstTensorView, ConstTensorView, ConstTensorView, const DropoutSpec&,
                                      RowPositions, TensorView);
template void bias_dropout_add<double>(ConstTensorView, ConstTensorView, ConstTensorView, const DropoutSpec&,
                                       RowPositions, TensorView);

}  // namespace megatron::kernels::ref
