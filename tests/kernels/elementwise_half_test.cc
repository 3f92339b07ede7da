// bfloat16 and float16 operands of kernels/elementwise.h and kernels/initialize.h.
#include <bit>

#include "half_testing.h"
#include "kernels/elementwise.h"
#include "kernels/initialize.h"

namespace megatron::kernels {
namespace {

template <typename T>
void check_all_patterns() {
  constexpr std::int64_t kPatterns = 65536;
  TestExecutor exec(2);
  Tensor half = exec.empty({kPatterns}, DTypeOf<T>::value), back = exec.empty({kPatterns}, DTypeOf<T>::value);
  Tensor wide = exec.empty({kPatterns}, DType::float32), twice = exec.empty({kPatterns}, DType::float64);
  for (std::int64_t i = 0; i < kPatterns; ++i) half.data<T>()[i] = T::from_bits(static_cast<std::uint16_t>(i));
  copy(exec, half, wide);
  copy(exec, half, twice);
  copy(exec, wide, back);
  for (std::int64_t i = 0; i < kPatterns; ++i) {
    const float value = wide.data<float>()[i];
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(half.data<T>()[i]))) << i;
      EXPECT_TRUE(std::isnan(static_cast<float>(back.data<T>()[i]))) << i;
      EXPECT_TRUE(std::isnan(twice.data<double>()[i])) << i;
      continue;
    }
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), std::bit_cast<std::uint32_t>(static_cast<float>(half.data<T>()[i])));
    EXPECT_EQ(twice.data<double>()[i], static_cast<double>(value));
    EXPECT_EQ(back.data<T>()[i].bits, i);
  }
}

TEST(ElementwiseHalf, CopyWidensAndNarrowsEveryPatternOnEveryIsa) {
  for (const std::string& isa : supported_isas()) {
    use_isa(isa);
    check_all_patterns<BFloat16>();
    check_all_patterns<Float16>();
  }
  use_isa("");
}

// Floats of all sizes, with the lower bits set, clear, and exactly half-way.
float spread_value(std::int64_t i) {
  const auto words = philox4x32({5, 6}, {static_cast<std::uint32_t>(i), 0, 0, 0});
  std::uint32_t bits = words[0];
  if (i % 4 == 1) bits = (bits & 0xFFFF0000U) | 0x8000U;                            // half-way of bfloat16
  if (i % 4 == 2) bits = (bits & 0xFFFFE000U) | 0x1000U;                            // of normal float16
  if (i % 8 > 3) bits = (bits & 0x807FFFFFU) | ((0x60U + words[1] % 0x30U) << 23);  // around float16's range
  return std::bit_cast<float>(bits);
}

template <typename T>
void check_rounding() {
  constexpr std::int64_t kSize = 40007;
  TestExecutor exec(2);
  Tensor wide = exec.empty({kSize}, DType::float32), half = exec.empty({kSize}, DTypeOf<T>::value);
  for (std::int64_t i = 0; i < kSize; ++i) wide.data<float>()[i] = spread_value(i);
  copy(exec, wide, half);
  for (std::int64_t i = 0; i < kSize; ++i)
    ASSERT_EQ(half.data<T>()[i].bits, T(spread_value(i)).bits) << spread_value(i);
}

TEST(ElementwiseHalf, CopyRoundsToNearestEvenOnEveryIsa) {
  for (const std::string& isa : supported_isas()) {
    use_isa(isa);
    check_rounding<BFloat16>();
    check_rounding<Float16>();
  }
  use_isa("");
  EXPECT_EQ(static_cast<float>(Float16(65519.0F)), 65504.0F);
  EXPECT_TRUE(std::isinf(static_cast<float>(Float16(65520.0F))));
}

TEST(ElementwiseHalf, CopyFromDoubleRoundsOnce) {
  TestExecutor exec;
  struct Item {
    double value;
    float bfloat16, float16;
  };
  const double tiny = 0x1p-40;
  // Just above, at and just below a tie: through float all three would be the tie.
  const Item items[] = {{1 + 0x1p-8 + tiny, 1 + 0x1p-7F, 1 + 0x1p-8F},
                        {1 + 0x1p-8, 1, 1 + 0x1p-8F},
                        {1 + 3 * 0x1p-8 - tiny, 1 + 0x1p-7F, 1 + 3 * 0x1p-8F},
                        {1 + 0x1p-11 + tiny, 1, 1 + 0x1p-10F},
                        {-(1 + 0x1p-11 + tiny), -1, -(1 + 0x1p-10F)},
                        {1 + 3 * 0x1p-11 - tiny, 1, 1 + 0x1p-10F},
                        {1e-300, 0, 0},
                        {-1e300, -std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}};
  for (const Item& item : items) {
    const Tensor from = make_tensor<double>(exec, {1}, [&](std::int64_t) { return item.value; });
    Tensor b = exec.empty({1}, DType::bfloat16), h = exec.empty({1}, DType::float16);
    copy(exec, from, b);
    copy(exec, from, h);
    EXPECT_EQ(static_cast<float>(b.data<BFloat16>()[0]), item.bfloat16) << item.value;
    EXPECT_EQ(static_cast<float>(h.data<Float16>()[0]), item.float16) << item.value;
  }
}

TEST(ElementwiseHalf, CopyBetweenTheTwoAndOfStridedViews) {
  for (const int threads : {1, 3}) {
    TestExecutor exec(threads);
    const Tensor src = random_tensor<BFloat16>(exec, {5, 6, 37}, 1, 3, 1e3).slice(1, 1, 5);
    Tensor half = random_tensor<Float16>(exec, {5, 4, 37}, 2, 2),
           same = random_tensor<BFloat16>(exec, {5, 4, 37}, 3, 1);
    copy(exec, src, half);
    copy(exec, src, same);
    const auto expected = values<BFloat16>(src), copied = values<BFloat16>(same);
    const auto got = values<Float16>(half);
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].bits, Float16(static_cast<float>(expected[i])).bits);
      EXPECT_EQ(copied[i].bits, expected[i].bits);
    }
  }
}

template <typename T>
void check_filling() {
  TestExecutor exec(2);
  Tensor whole = random_tensor<T>(exec, {40, 50}, 1);
  Tensor zero = whole.slice(1, 3, 20), constant = whole.slice(1, 21, 50);
  fill_zero(exec, zero);
  fill_constant(exec, 0.3, constant);
  for (std::int64_t i = 0; i < 40 * 50; ++i) {
    const std::int64_t column = i % 50;
    T expected(random_value(1, i));
    if (column >= 3 && column < 20) expected = T(0.0F);
    if (column >= 21) expected = T(0.3F);
    ASSERT_EQ(whole.data<T>()[i].bits, expected.bits) << i;
  }
  EXPECT_THROW(fill_normal(exec, {1, 2}, 1, 0, 0, 50, whole), Error);
}

TEST(ElementwiseHalf, FillsTouchTheViewOnly) {
  check_filling<BFloat16>();
  check_filling<Float16>();
}

TEST(ElementwiseHalf, SumsAreRoundedOnce) {
  for (const std::int64_t width : {1, 7, 33, 127, 300})
    expect_rounded_results([&](auto twin, Executor& exec) {
      std::vector<float> result;
      Tensor y = twin.random(exec, {70, width}, 1, 3), residual = random_tensor<float>(exec, {70, width}, 2, 1);
      const Tensor x = twin.random(exec, {70, width}, 3, 5), bias = twin.random(exec, {width}, 4);
      Tensor grad = random_tensor<float>(exec, {width}, 5);
      add_in_place(exec, x, y);
      twin.read(result, y);
      Tensor z = twin.random(exec, {70, width}, 1);
      add_in_place(exec, residual, z);  // float32 to 16 bits
      twin.read(result, z);
      add_in_place(exec, x, residual);  // and back
      append(result, values<float>(residual));
      Tensor biased = twin.random(exec, {70, width}, 6, 2);
      add_bias(exec, bias, biased);
      twin.read(result, biased);
      bias_grad(exec, x, grad);
      append(result, values<float>(grad));
      return result;
    });
}

TEST(ElementwiseHalf, DropoutWithResidualIsRoundedOnce) {
  std::vector<std::int64_t> sample, position;
  for (std::int64_t t = 0; t < 20; ++t) sample.push_back(t / 7), position.push_back(t % 7);
  const RowPositions rows{sample.data(), position.data()};
  for (const std::int64_t width : {1, 7, 33, 301})
    for (const double p : {0.0, 0.3})
      expect_rounded_results([&](auto twin, Executor& exec) {
        const DropoutSpec dropout{p, make_philox_key(3, RandomPurpose::hidden_dropout, 1), 6};
        std::vector<float> result;
        const Tensor x = twin.random(exec, {20, width}, 1, 1), bias = twin.random(exec, {width}, 2);
        const Tensor residual = twin.random(exec, {20, width}, 3, 2);
        const Tensor stream = random_tensor<float>(exec, {20, width}, 4);
        Tensor y = twin.empty(exec, {20, width}), wide = exec.empty({20, width}, DType::float32);
        Tensor dx = twin.empty(exec, {20, width});
        bias_dropout_add(exec, x, bias, residual, dropout, rows, y);
        twin.read(result, y);
        bias_dropout_add(exec, x, {}, {}, dropout, rows, y);
        twin.read(result, y);
        bias_dropout_add(exec, x, bias, stream, dropout, rows, wide);  // a float32 residual stream
        append(result, values<float>(wide));
        dropout_backward(exec, x, dropout, rows, dx);
        twin.read(result, dx);
        dropout_backward(exec, stream, dropout, rows, dx);
        twin.read(result, dx);
        return result;
      });
}

TEST(ElementwiseHalf, OverflowOfFloat16IsInfinite) {
  TestExecutor exec;
  const auto large = [](std::int64_t i) { return i % 2 == 0 ? 60000.0 : -60000.0; };
  Tensor y = make_tensor<Float16>(exec, {33}, large);
  add_in_place(exec, make_tensor<Float16>(exec, {33}, large), y);
  for (std::int64_t i = 0; i < 33; ++i)
    EXPECT_EQ(static_cast<float>(y.data<Float16>()[i]), (i % 2 == 0 ? 1 : -1) * std::numeric_limits<float>::infinity());
}

TEST(ElementwiseHalf, RefusesOtherMixesAndCountsAlikeOnMeta) {
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    Tensor b = exec.zeros({3, 8}, DType::bfloat16), h = exec.zeros({3, 8}, DType::float16);
    Tensor f = exec.zeros({3, 8}, DType::float32), d = exec.zeros({3, 8}, DType::float64);
    Tensor bias = exec.zeros({8}, DType::bfloat16), wide_bias = exec.zeros({8}, DType::float32);
    copy(exec, b, h);
    copy(exec, d, b);
    add_in_place(exec, b, f);
    add_bias(exec, bias, b);
    bias_grad(exec, b, wide_bias);
    bias_dropout_add(exec, b, bias, f, {}, {}, f);
    dropout_backward(exec, f, {}, {}, h);
    EXPECT_THROW(add_in_place(exec, b, h), Error);
    EXPECT_THROW(add_in_place(exec, d, b), Error);
    EXPECT_THROW(add_bias(exec, wide_bias, b), Error);
    EXPECT_THROW(bias_grad(exec, b, bias), Error);
    EXPECT_THROW(bias_dropout_add(exec, b, wide_bias, b, {}, {}, b), Error);
    EXPECT_THROW(bias_dropout_add(exec, b, bias, h, {}, {}, b), Error);
    EXPECT_THROW(bias_dropout_add(exec, f, {}, {}, {}, {}, b), Error);
    EXPECT_THROW(dropout_backward(exec, b, {}, {}, h), Error);
    counted[meta ? 1 : 0] = exec.counters().bytes_moved;
  }
  EXPECT_EQ(counted[0], counted[1]);
}

}  // namespace
}  // namespace megatron::kernels
