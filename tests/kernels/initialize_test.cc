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

TEST(Initialize, LongRunsAreCutWithoutATrace) {
  // Both sizes of pieces, whole matrices and boxes: each value is that of its logical index.
  constexpr std::int64_t kRows = 2100, kCols = 2003;
  const auto fill = [](Executor& exec, std::int64_t col, std::int64_t cols) {
    Tensor w = exec.empty({kRows, cols}, DType::float32);
    fill_normal(exec, kKey, 0.02, 0, col, kCols, w);
    return w;
  };
  TestExecutor one(1), three(3);
  const Tensor whole = fill(three, 0, kCols), box = fill(three, 3, kCols - 3), alone = fill(one, 0, kCols);
  ASSERT_EQ(std::memcmp(whole.data<float>(), alone.data<float>(), static_cast<std::size_t>(whole.bytes())), 0);
  for (std::int64_t r = 0; r < kRows; ++r)
    ASSERT_EQ(std::memcmp(whole.data<float>() + r * kCols + 3, box.data<float>() + r * (kCols - 3),
                          static_cast<std::size_t>(kCols - 3) * sizeof(float)),
              0)
        << "row " << r;
  for (std::int64_t i = 0; i < whole.numel(); i += 65521)
    ASSERT_NEAR(whole.data<float>()[i], 0.02 * ref::normal_at(kKey, i), 0.02 * 8e-7) << i;
}

TEST(Initialize, ClaimingPagesChangesNoValue) {
  for (const int threads : {1, 3}) {
    TestExecutor exec(threads);
    Tensor w = exec.empty({3 << 20}, DType::float32);
    fill_uniform(exec, kKey, 1, 0, 0, w.numel(), w);
    const std::vector<float> before = values<float>(w);
    for (const auto& [begin, end] : {std::pair{0, 3 << 20}, {0, 0}, {1, 2}, {1023, 1025}, {700001, 2100003}})
      claim_pages(exec, w.slice(0, begin, end));
    EXPECT_TRUE(same_bits(before, values<float>(w)));
  }
  TestExecutor meta(1, Device::meta);
  Tensor w = meta.empty({100}, DType::float32);
  claim_pages(meta, w);
  EXPECT_EQ(meta.counters().bytes_moved, 0);
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
