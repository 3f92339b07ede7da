#include "kernels/tree_sum.h"

#include <limits>

#include "base/float16.h"
#include "kernel_testing.h"
#include "kernels/isa.h"

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

// All outputs, of any number, place in a cache line and kind of store; the inputs themselves among them.
TEST(TreeSum, SeveralOutputs) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{8}}) {
    for (const Stores stores : {Stores::cached, Stores::streaming}) {
      for (const std::size_t skew : {std::size_t{0}, std::size_t{3}}) {
        constexpr std::size_t kSize = 1037, kRoom = kSize + 32;
        std::vector<std::vector<float>> inputs(n, std::vector<float>(kSize));
        std::vector<std::vector<float>> memory(n, std::vector<float>(kRoom, -7.0F));
        std::vector<const void*> from;
        std::vector<void*> to;
        for (std::size_t r = 0; r < n; ++r) {
          float* place = memory[r].data() + 16 + (r == 0 ? 0 : skew);
          for (std::size_t i = 0; i < kSize; ++i)
            inputs[r][i] = place[i] = random_value(static_cast<std::uint32_t>(r), static_cast<std::int64_t>(i));
          from.push_back(place);
          to.push_back(place);
        }
        std::vector<float> expected(kSize);
        for (std::size_t i = 0; i < kSize; ++i) expected[i] = tree(inputs, 0, n, i);
        tree_reduce(ReduceOp::sum, DType::float32, from, to, static_cast<std::int64_t>(kSize), stores);
        for (std::size_t r = 0; r < n; ++r) {
          const float* place = static_cast<const float*>(to[r]);
          EXPECT_TRUE(same_bits(expected, std::vector<float>(place, place + kSize))) << n << " inputs, output " << r;
          EXPECT_EQ(place[-1], -7.0F);
          EXPECT_EQ(place[kSize], -7.0F);
        }
      }
    }
  }
}

TEST(TreeSum, CopiesOfAnySizeAndPlace) {
  std::vector<std::uint8_t> from(400);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 7 + 1);
  for (const Stores stores : {Stores::cached, Stores::streaming})
    for (std::size_t size = 0; size < 200; size += 13)
      for (std::size_t place = 1; place < 70; place += 9) {
        std::vector<std::uint8_t> to(400, 0);
        std::vector<std::uint8_t> expected(400, 0);
        std::copy_n(from.begin() + 5, size, expected.begin() + static_cast<std::ptrdiff_t>(place));
        copy_bytes(from.data() + 5, to.data() + place, static_cast<std::int64_t>(size), stores);
        EXPECT_EQ(to, expected) << size << " bytes at " << place;
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

// The tree in float over 16-bit terms, rounded once; as many outputs as inputs, in place or not.
template <typename T>
void check_halves(std::size_t n, std::size_t size, ReduceOp op, Stores stores, bool to_all) {
  std::vector<std::vector<float>> wide(n, std::vector<float>(size));
  std::vector<std::vector<T>> memory(n, std::vector<T>(size + 1));
  std::vector<const void*> from, wide_from;
  std::vector<void*> to;
  for (std::size_t r = 0; r < n; ++r) {
    T* place = memory[r].data() + r % 2;  // not on a vector's border
    for (std::size_t i = 0; i < size; ++i) {
      place[i] = T(random_value(static_cast<std::uint32_t>(r), static_cast<std::int64_t>(i)));
      wide[r][i] = static_cast<float>(place[i]);
    }
    from.push_back(place);
    wide_from.push_back(wide[r].data());
    if (to_all || r == n - 1) to.push_back(place);
  }
  std::vector<float> expected(size);
  tree_reduce(op, DType::float32, wide_from, expected.data(), static_cast<std::int64_t>(size));
  tree_reduce(op, DTypeOf<T>::value, from, to, static_cast<std::int64_t>(size), stores);
  for (const void* output : to)
    for (std::size_t i = 0; i < size; ++i)
      ASSERT_EQ(static_cast<const T*>(output)[i].bits, T(expected[i]).bits) << n << " inputs, element " << i;
}

TEST(TreeSum, SixteenBitTermsAreAddedInFloatAndRoundedOnce) {
  for (const std::string& isa : supported_isas()) {
    use_isa(isa);
    for (std::size_t n = 1; n <= 17; ++n)
      for (const std::size_t size : {std::size_t{1}, std::size_t{33}, std::size_t{5001}})
        for (const Stores stores : {Stores::cached, Stores::streaming})
          for (const bool to_all : {false, true}) {
            check_halves<BFloat16>(n, size, ReduceOp::sum, stores, to_all);
            check_halves<Float16>(n, size, ReduceOp::sum, stores, to_all);
          }
    check_halves<BFloat16>(5, 300, ReduceOp::max, Stores::cached, true);
    check_halves<Float16>(2, 300, ReduceOp::min, Stores::cached, false);
  }
  use_isa("");
  // 1 + 2⁻⁸ + 2⁻⁸: term by term in bfloat16 it would stay 1.
  std::vector<BFloat16> terms{BFloat16(1.0F), BFloat16(0x1p-8F), BFloat16(0x1p-8F)};
  const std::vector<const void*> from{&terms[0], &terms[1], &terms[2]};
  BFloat16 sum(0.0F);
  tree_reduce(ReduceOp::sum, DType::bfloat16, from, &sum, 1);
  EXPECT_EQ(static_cast<float>(sum), 1 + 0x1p-7F);
}

}  // namespace
}  // namespace megatron::kernels
