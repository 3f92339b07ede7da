#include "kernels/elementwise.h"

#include "kernel_testing.h"

namespace megatron::kernels {
namespace {

// Rows of a batch: samples and positions as a layout would number them.
struct Rows {
  std::vector<std::int64_t> sample, position;
  explicit Rows(std::int64_t count) {
    for (std::int64_t t = 0; t < count; ++t) {
      sample.push_back((std::int64_t{1} << 33) + t / 10);
      position.push_back(t % 10);
    }
  }
  RowPositions from(std::int64_t row) const { return {sample.data() + row, position.data() + row}; }
};

DropoutSpec dropout_spec(double p, std::int64_t first_feature = 0) {
  return {p, make_philox_key(1234, RandomPurpose::hidden_dropout, 3), first_feature};
}

TEST(Elementwise, CopyTakesAnyStridesAndConverts) {
  for (const int threads : {1, 3}) {
    TestExecutor exec(threads);
    const Tensor src = random_tensor<float>(exec, {5, 6, 7, 9}, 1, 2).slice(1, 1, 5).slice(2, 0, 6);
    Tensor same = random_tensor<float>(exec, {5, 4, 6, 9}, 2, 1), wide = exec.empty({5, 4, 6, 9}, DType::float64);
    Tensor back = random_tensor<float>(exec, {5, 4, 6, 9}, 3, 4);
    copy(exec, src, same);
    copy(exec, src, wide);
    copy(exec, wide, back);
    EXPECT_TRUE(same_bits(values<float>(src), values<float>(same)));
    EXPECT_TRUE(same_bits(values<float>(src), values<float>(back)));
    const Tensor large = random_tensor<float>(exec, {70000}, 4);
    Tensor other = exec.empty({70000}, DType::float32);
    copy(exec, large, other);
    EXPECT_TRUE(same_bits(values<float>(large), values<float>(other)));
  }
}

TEST(Elementwise, FillAndAddTouchTheViewOnly) {
  const std::vector<float> result = same_everywhere([](Executor& exec) {
    Tensor whole = random_tensor<float>(exec, {40, 3, 50}, 1);
    Tensor part = whole.slice(2, 3, 40).slice(1, 0, 2), zero = whole.slice(2, 45, 47);
    const Tensor other = random_tensor<float>(exec, {40, 2, 37}, 2, 3);
    add_in_place(exec, other, part);
    fill_zero(exec, zero);
    return values<float>(whole);
  });
  for (std::int64_t i = 0; i < 40 * 3 * 50; ++i) {
    const std::int64_t row = i / 50, column = i % 50;
    float expected = random_value(1, i);
    if (row % 3 < 2 && column >= 3 && column < 40)
      expected += random_value(2, (row / 3 * 2 + row % 3) * 37 + column - 3);
    if (column >= 45 && column < 47) expected = 0;
    ASSERT_EQ(result[static_cast<std::size_t>(i)], expected) << i;
  }
}

TEST(Elementwise, BiasAndItsGradient) {
  for (const std::int64_t rows : {1, 63, 64, 200, 1000}) {
    TestExecutor plain;
    const Tensor dy64 = random_tensor<double>(plain, {rows, 37}, 1);
    Tensor grad64 = random_tensor<double>(plain, {37}, 2);
    bias_grad(plain, dy64, grad64);
    const std::vector<float> got = same_everywhere([&](Executor& exec) {
      const Tensor dy = random_tensor<float>(exec, {rows, 37}, 1, 6), bias = random_tensor<float>(exec, {37}, 3);
      Tensor grad = random_tensor<float>(exec, {37}, 2), y = random_tensor<float>(exec, {rows, 37}, 4, 2);
      bias_grad(exec, dy, grad);
      add_bias(exec, bias, y);
      for (std::int64_t i = 0; i < rows * 37; ++i)
        EXPECT_EQ(values<float>(y.slice(0, i / 37, i / 37 + 1))[static_cast<std::size_t>(i % 37)],
                  random_value(4, i) + random_value(3, i % 37));
      return values<float>(grad);
    });
    EXPECT_LT(relative_rms(got, values<double>(grad64)), 1e-6) << rows;
  }
}

// 64 tokens in order, then the tree over blocks: 1 + (2^24 once) keeps what a plain chain of 2^24 + 1 + 1 … would lose.
TEST(Elementwise, BiasGradientAddsBlocksByTheTree) {
  TestExecutor exec;
  const Tensor dy = make_tensor<float>(exec, {192, 1}, [](std::int64_t i) {
    return i == 0 ? 16777216.0 : i >= 64 ? 1.0 : 0.0;
  });
  Tensor grad = exec.zeros({1}, DType::float32);
  bias_grad(exec, dy, grad);
  EXPECT_EQ(grad.data<float>()[0], 16777216.0F + 64.0F + 64.0F);
}

TEST(Elementwise, DropoutFollowsItsDefinitionOnEveryIsa) {
  const Rows rows(30);
  for (const double p : {0.0, 0.1, 0.5}) {
    for (const std::int64_t first : {0, 6}) {
      const std::vector<float> got = same_everywhere([&](Executor& exec) {
        const Tensor x = random_tensor<float>(exec, {30, 301}, 1, 3), bias = random_tensor<float>(exec, {301}, 2);
        const Tensor residual = random_tensor<float>(exec, {30, 301}, 3, 1);
        Tensor y = random_tensor<float>(exec, {30, 301}, 4, 2), dx = random_tensor<float>(exec, {30, 301}, 5);
        bias_dropout_add(exec, x, bias, residual, dropout_spec(p, first), rows.from(0), y);
        dropout_backward(exec, x, dropout_spec(p, first), rows.from(0), dx);
        std::vector<float> result = values<float>(y);
        append(result, values<float>(dx));
        return result;
      });
      const auto scale = static_cast<float>(1 / (1 - p));
      for (std::int64_t i = 0; i < 30 * 301; ++i) {
        const std::int64_t t = i / 301, feature = first + i % 301;
        const auto s = static_cast<std::size_t>(t);
        const auto sample = static_cast<std::uint64_t>(rows.sample[s]);
        const auto words =
            philox4x32(dropout_spec(p).key,
                       {static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(sample >> 32),
                        static_cast<std::uint32_t>(rows.position[s]), static_cast<std::uint32_t>(feature / 4)});
        const bool kept = static_cast<double>(uniform_from_bits(words[static_cast<std::size_t>(feature % 4)])) >= p;
        const float sum = random_value(1, i) + random_value(2, i % 301);
        ASSERT_EQ(got[static_cast<std::size_t>(i)], random_value(3, i) + (kept ? sum * scale : 0)) << i;
        ASSERT_EQ(got[static_cast<std::size_t>(30 * 301 + i)], kept ? random_value(1, i) * scale : 0) << i;
      }
    }
  }
}

TEST(Elementwise, DropoutRateAndLayoutIndependence) {
  TestExecutor exec(2);
  const std::int64_t tokens = 500, hidden = 200;
  const Rows rows(tokens);
  const Tensor one = make_tensor<float>(exec, {tokens, hidden}, [](std::int64_t) { return 1.0; });
  Tensor y = exec.empty({tokens, hidden}, DType::float32);
  bias_dropout_add(exec, one, {}, {}, dropout_spec(0.1), rows.from(0), y);
  std::int64_t dropped = 0;
  for (const float value : values<float>(y)) dropped += value == 0 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(dropped) / (tokens * hidden), 0.1, 0.005);  // 5 standard deviations
  // A shard of the tokens and of the features sees the same mask.
  Tensor part = exec.empty({100, 70}, DType::float32);
  bias_dropout_add(exec, one.slice(0, 300, 400).slice(1, 0, 70), {}, {}, dropout_spec(0.1, 50), rows.from(300), part);
  EXPECT_TRUE(same_bits(values<float>(y.slice(0, 300, 400).slice(1, 50, 120)), values<float>(part)));
}

TEST(Elementwise, DoubleUsesTheSameMask) {
  TestExecutor exec;
  const Rows rows(20);
  const Tensor x = random_tensor<float>(exec, {20, 33}, 1), x64 = random_tensor<double>(exec, {20, 33}, 1);
  Tensor y = exec.empty({20, 33}, DType::float32), y64 = exec.empty({20, 33}, DType::float64);
  bias_dropout_add(exec, x, {}, {}, dropout_spec(0.3, 2), rows.from(0), y);
  bias_dropout_add(exec, x64, {}, {}, dropout_spec(0.3, 2), rows.from(0), y64);
  EXPECT_LT(largest_error(values<float>(y), values<double>(y64)), 2e-7);
}

TEST(Elementwise, EmptyAndMetaInputs) {
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    for (const std::int64_t rows : {0, 3}) {
      const Rows positions(rows);
      Tensor x = exec.zeros({rows, 8}, DType::float32), bias = exec.zeros({8}, DType::float32);
      copy(exec, x, x);
      fill_zero(exec, x);
      add_in_place(exec, x, x);
      add_bias(exec, bias, x);
      bias_grad(exec, x, bias);
      const RowPositions place = meta ? RowPositions() : positions.from(0);
      bias_dropout_add(exec, x, bias, x, dropout_spec(0.2), place, x);
      dropout_backward(exec, x, dropout_spec(0.2), place, x);
      EXPECT_THROW(add_bias(exec, x, x), Error);
      EXPECT_THROW(bias_dropout_add(exec, x, {}, {}, dropout_spec(1.0), place, x), Error);
    }
    counted[meta ? 1 : 0] = exec.counters().bytes_moved;
  }
  EXPECT_EQ(counted[0], counted[1]);
  EXPECT_GT(counted[0], 0);
}

}  // namespace
}  // namespace megatron::kernels
