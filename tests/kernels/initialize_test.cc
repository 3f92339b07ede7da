#include "kernels/initialize.h"

#include "kernel_testing.h"
#include "kernels/ref/initialize.h"

namespace megatron::kernels {
namespace {

const PhiloxKey kKey = make_philox_key(1234, RandomPurpose::initialization, 2);

TEST(Initialize, NormalFollowsItsDefinitionOnEveryIsa) {
  const std::vector<float> got = same_everywhere([](Executor& exec) {
    Tensor w = exec.empty({30, 701}, DType::float32);
    fill_normal(exec, kKey, 0.02, 5, 3, 1000, w);
    return values<float>(w);
  });
  for (std::int64_t i = 0; i < 30 * 701; ++i) {
    const double expected = 0.02 * ref::normal_at(kKey, (5 + i / 701) * 1000 + 3 + i % 701);
    ASSERT_NEAR(got[static_cast<std::size_t>(i)], expected, 0.02 * 8e-7) << i;
  }
}

TEST(Initialize, AnyCutOfAMatrixHasTheSameBits) {
  for (const bool uniform : {false, true}) {
    const auto fill = [&](Executor& exec, std::int64_t row, std::int64_t col, TensorView w) {
      uniform ? fill_uniform(exec, kKey, 0.5, row, col, 53, w) : fill_normal(exec, kKey, 0.5, row, col, 53, w);
    };
    const std::vector<float> whole_bits = same_everywhere([&](Executor& exec) {
      Tensor whole = exec.empty({40, 53}, DType::float32);
      fill(exec, 0, 0, whole);
      for (const std::int64_t cut : {1, 2, 3, 17, 52}) {
        Tensor right = random_tensor<float>(exec, {11, 53 - cut}, 1, 2),
               wide = exec.empty({11, 53 - cut}, DType::float64);
        fill(exec, 7, cut, right);
        fill(exec, 7, cut, wide);
        const auto expected = values<float>(whole.slice(0, 7, 18).slice(1, cut, 53));
        EXPECT_TRUE(same_bits(expected, values<float>(right))) << cut;
        EXPECT_EQ(largest_error(expected, values<double>(wide)), 0) << cut;
      }
      return values<float>(whole);
    });
    EXPECT_EQ(whole_bits.size(), 40U * 53U);
  }
}

TEST(Initialize, NormalHasTheMomentsOfANormal) {
  TestExecutor exec(2);
  Tensor w = exec.empty({400, 500}, DType::float32);
  fill_normal(exec, kKey, 1, 0, 0, 500, w);
  double moments[5] = {};
  for (const float value : values<float>(w)) {
    double power = 1;
    for (double& moment : moments) {
      moment += power / (400 * 500);
      power *= static_cast<double>(value);
    }
  }
  EXPECT_NEAR(moments[1], 0, 0.01);
  EXPECT_NEAR(moments[2], 1, 0.02);
  EXPECT_NEAR(moments[3], 0, 0.05);
  EXPECT_NEAR(moments[4], 3, 0.15);
}

TEST(Initialize, UniformStaysInItsBoundsAndFillsThem) {
  TestExecutor exec;
  Tensor w = exec.empty({200, 500}, DType::float32);
  fill_uniform(exec, kKey, 0.25, 0, 0, 500, w);
  double sum = 0, squares = 0;
  const auto got = values<float>(w);
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_GE(got[i], -0.25F);
    ASSERT_LT(got[i], 0.25F);
    ASSERT_EQ(got[i], 0.25F * ref::uniform_at(kKey, static_cast<std::int64_t>(i)));
    sum += static_cast<double>(got[i]);
    squares += static_cast<double>(got[i]) * static_cast<double>(got[i]);
  }
  EXPECT_NEAR(sum / 100000, 0, 0.003);
  EXPECT_NEAR(squares / 100000, 0.25 * 0.25 / 3, 0.0005);
}

TEST(Initialize, HugeIndicesDoNotWrap) {
  TestExecutor exec;
  const std::int64_t columns = std::int64_t{1} << 20, row = (std::int64_t{1} << 14) - 1;  // index / 4 crosses 2^32
  Tensor w = exec.empty({2, 64}, DType::float32);
  fill_normal(exec, kKey, 1, row, columns - 64, columns, w);
  for (std::int64_t i = 0; i < 64; ++i)
    EXPECT_NEAR(w.data<float>()[i], ref::normal_at(kKey, row * columns + columns - 64 + i), 2e-6);
}

TEST(Initialize, ConstantsVectorsEmptyAndMeta) {
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    Tensor w = exec.zeros({10, 6}, DType::float32), vector = exec.zeros({8}, DType::float32);
    Tensor none = exec.zeros({0, 6}, DType::float32);
    fill_constant(exec, 1.5, w.slice(1, 2, 4));
    fill_constant(exec, 1, none);
    fill_normal(exec, kKey, 1, 0, 0, 6, none);
    fill_normal(exec, kKey, 1, 0, 0, 8, vector);
    EXPECT_THROW(fill_normal(exec, kKey, 1, 0, 3, 8, w), Error);
    counted[meta ? 1 : 0] = exec.counters().bytes_moved;
    if (meta) continue;
    EXPECT_EQ(w.data<float>()[2], 1.5F);
    EXPECT_EQ(w.data<float>()[1], 0.0F);
    EXPECT_NEAR(vector.data<float>()[5], ref::normal_at(kKey, 5), 2e-6);
  }
  EXPECT_EQ(counted[0], counted[1]);
}

}  // namespace
}  // namespace megatron::kernels
