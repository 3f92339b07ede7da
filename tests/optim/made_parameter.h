// Parameters made by hand, with values and gradients given as numbers.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mesh/mesh.h"
#include "nn/parameter.h"

namespace megatron::optim {

/// A parameter with allocated value and main_grad, both zero.
inline std::unique_ptr<nn::Parameter> made_parameter(kernels::Executor& exec, const std::string& name,
                                                     const spec::Sharding& sharding, DType dtype = DType::float32) {
  auto parameter = std::make_unique<nn::Parameter>();
  parameter->name = name;
  parameter->sharding = sharding;
  parameter->decay = sharding.num_dims > 1;
  const Shape shape =
      sharding.num_dims == 1 ? Shape{sharding.local_rows} : Shape{sharding.local_rows, sharding.local_cols};
  parameter->value = exec.zeros(shape, dtype, MemoryKind::parameter);
  parameter->main_grad = exec.zeros(shape, dtype, MemoryKind::gradient);
  return parameter;
}

/// A whole tensor on one rank.
inline std::unique_ptr<nn::Parameter> made_parameter(kernels::Executor& exec, const std::string& name,
                                                     std::int64_t rows, std::int64_t cols) {
  return made_parameter(exec, name, spec::replicated(cols == 0 ? 1 : 2, rows, cols == 0 ? 1 : cols, 0));
}

/// Parameters that live on, in forward order.
struct Made {
  std::vector<std::unique_ptr<nn::Parameter>> owner;
  std::vector<nn::Parameter*> all;
  nn::Parameter& add(std::unique_ptr<nn::Parameter> parameter) {
    owner.push_back(std::move(parameter));
    all.push_back(owner.back().get());
    return *owner.back();
  }
};

inline void set_values(Tensor& tensor, const std::vector<float>& values) {
  MEGATRON_CHECK_EQ(tensor.numel(), std::ssize(values));
  std::copy(values.begin(), values.end(), tensor.data<float>());
}

/// The gradient of a step out of a golden file that holds those of all steps.
template <typename File>
void set_golden_grad(nn::Parameter& parameter, const File& file, std::size_t step) {
  const std::vector<float> grads = file.read_float(parameter.name + ".grads");
  const auto n = static_cast<std::size_t>(parameter.value.numel());
  std::copy_n(grads.begin() + static_cast<std::ptrdiff_t>(step * n), n, parameter.main_grad.data<float>());
}

inline std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.numel()};
}

/// A logical element's value that is neither round nor regular.
inline float made_value(std::int64_t index) {
  const auto mixed = static_cast<std::uint64_t>(index + 1) * 0x9E3779B97F4A7C15ULL;
  return static_cast<float>(static_cast<double>(mixed >> 40) / 16777216.0 - 0.5) *
         (1.0F + static_cast<float>(index % 13));
}

/// Puts `value(logical index)` where a rank's shard holds it; padding stays.
template <typename F>
void fill_shard(const spec::Sharding& sharding, Tensor& tensor, F&& value) {
  for (const spec::Piece& piece : sharding.pieces)
    for (std::int64_t r = 0; r < piece.global.rows; ++r)
      for (std::int64_t c = 0; c < piece.global.cols; ++c)
        tensor.data<float>()[(piece.local_row + r) * sharding.local_cols + c] =
            value((piece.global.row + r) * sharding.cols + piece.global.col + c);
}

}  // namespace megatron::optim
