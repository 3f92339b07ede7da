#include "kernels/tree_sum.h"

#include <limits>

#include "kernel_testing.h"

namespace megatron::kernels {
namespace {

// The definition: split at the largest power of two below n.
float tree(const std::vector<std::vector<float>>& inputs, std::size_t begin, std::size_t count, std::size_t i) {
  if (count == 1) return inputs[begin][i];
  std::size_t half = 1;
  while (2 * half < count) half *= 2;
  return tree(inputs, begin, half, i) + tree(inputs, begin + half, count - half, i);
}

TEST(TreeSum, IsTheLeftFullTreeForAnyNumberOfInputs) {
  for (std::size_t n = 1; n <= 33; ++n) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{300}}) {
      std::vector<std::vector<float>> inputs(n, std::vector<float>(size));
      std::vector<const void*> pointers;
      for (std::size_t r = 0; r < n; ++r) {
        for (std::size_t i = 0; i < size; ++i)
          inputs[r][i] = random_value(static_cast<std::uint32_t>(r), static_cast<std::int64_t>(i));
        pointers.push_back(inputs[r].data());
      }
      std::vector<float> expected(size), out(size);
      for (std::size_t i = 0; i < size; ++i) expected[i] = tree(inputs, 0, n, i);
      tree_reduce(ReduceOp::sum, DType::float32, pointers, out.data(), static_cast<std::int64_t>(size));
      EXPECT_TRUE(same_bits(expected, out)) << n << " inputs";
      // Into each end of the inputs.
      tree_reduce(ReduceOp::sum, DType::float32, pointers, inputs[n - 1].data(), static_cast<std::int64_t>(size));
      EXPECT_TRUE(same_bits(expected, inputs[n - 1])) << n << " inputs";
    }
  }
}

template <typename T>
T reduce(ReduceOp op, DType dtype, std::vector<T> items) {
  std::vector<const void*> pointers;
  for (const T& item : items) pointers.push_back(&item);
  T out{};
  tree_reduce(op, dtype, pointers, &out, 1);
  return out;
}

TEST(TreeSum, OtherTypesAndOperations) {
  EXPECT_EQ(reduce<std::int64_t>(ReduceOp::sum, DType::int64, {1, -2, 1LL << 40}), (1LL << 40) - 1);
  EXPECT_EQ(reduce<std::int64_t>(ReduceOp::sum, DType::int64, {std::numeric_limits<std::int64_t>::max(), 1}),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(reduce<std::int32_t>(ReduceOp::max, DType::int32, {3, 9, -4}), 9);
  EXPECT_EQ(reduce<std::int32_t>(ReduceOp::min, DType::int32, {3, 9, -4}), -4);
  EXPECT_EQ(reduce<double>(ReduceOp::sum, DType::float64, {0.1, 0.2, 0.3}), (0.1 + 0.2) + 0.3);
  EXPECT_EQ(reduce<float>(ReduceOp::max, DType::float32, {1, 5, 2, 4}), 5);
  EXPECT_EQ(reduce<float>(ReduceOp::min, DType::float32, {1, 5, -2, 4}), -2);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto& items : {std::vector<float>{nan, 1, 2}, {1, nan, 2}, {1, 2, nan}}) {
    EXPECT_TRUE(std::isnan(reduce<float>(ReduceOp::max, DType::float32, items)));
    EXPECT_TRUE(std::isnan(reduce<float>(ReduceOp::min, DType::float32, items)));
    EXPECT_TRUE(std::isnan(reduce<float>(ReduceOp::sum, DType::float32, items)));
  }
}

}  // namespace
}  // namespace megatron::kernels
