#include "kernels/optimizer_step.h"

#include <limits>

#include "half_testing.h"
#include "kernels/initialize.h"

namespace megatron::kernels {
namespace {

constexpr std::int64_t kSize = 20011;

AdamStep adam_step(int step) {
  return {1e-2, 0.9, 0.999, 1e-8, 0.1, 1 - std::pow(0.9, step), 1 - std::pow(0.999, step), 0.5};
}

template <typename T>
std::vector<T> adam(Executor& exec, int steps) {
  Tensor p = random_tensor<T>(exec, {kSize}, 1);
  Tensor m = exec.zeros({kSize}, DTypeOf<T>::value), v = exec.zeros({kSize}, DTypeOf<T>::value);
  for (int step = 1; step <= steps; ++step)
    adamw_step(exec, adam_step(step), p, random_tensor<T>(exec, {kSize}, 10 + static_cast<std::uint32_t>(step)), m, v);
  std::vector<T> result;
  for (const Tensor* t : {&p, &m, &v})
    for (const T value : values<T>(*t)) result.push_back(value);
  return result;
}

TEST(OptimizerStep, AdamwAgreesWithTheFormulaOnEveryIsa) {
  const std::vector<float> got = same_everywhere([](Executor& exec) { return adam<float>(exec, 3); });
  TestExecutor exec;
  const std::vector<double> oracle = adam<double>(exec, 3);
  EXPECT_LT(largest_error(got, oracle), 1e-6);
  for (const std::int64_t i : {std::int64_t{0}, std::int64_t{77}, kSize - 1}) {
    double p = static_cast<double>(random_value(1, i)), m = 0, v = 0;
    for (int step = 1; step <= 3; ++step) {
      const double g = 0.5 * static_cast<double>(random_value(10 + static_cast<std::uint32_t>(step), i));
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      const double update = m / (1 - std::pow(0.9, step)) / (std::sqrt(v / (1 - std::pow(0.999, step))) + 1e-8);
      p -= 1e-2 * (update + 0.1 * p);
    }
    EXPECT_NEAR(oracle[static_cast<std::size_t>(i)], p, 1e-14);
  }
}

TEST(OptimizerStep, LongTensorsAreCutWithoutATrace) {
  constexpr std::int64_t kLong = (std::int64_t{1} << 22) + 64 * 7 + 5;
  const auto uniform = [](Executor& exec, std::uint32_t stream) {
    Tensor t = exec.empty({kLong}, DType::float32);
    fill_uniform(exec, make_philox_key(stream, RandomPurpose::test, 0), 1, 0, 0, kLong, t);
    return t;
  };
  TestExecutor exec(3);
  Tensor p = uniform(exec, 1), m = uniform(exec, 3), v = exec.zeros({kLong}, DType::float32);
  Tensor p2 = uniform(exec, 1), m2 = uniform(exec, 3), v2 = exec.zeros({kLong}, DType::float32);
  const Tensor g = uniform(exec, 2);
  adamw_step(exec, adam_step(2), p, g, m, v);
  ExactSum whole, parts;
  add_squared_norm(exec, g, whole);
  // The same in short pieces, whose borders lie elsewhere.
  constexpr std::int64_t kPiece = 64 * 9999;
  for (std::int64_t begin = 0; begin < kLong; begin += kPiece) {
    const std::int64_t end = std::min(kLong, begin + kPiece);
    adamw_step(exec, adam_step(2), p2.slice(0, begin, end), g.slice(0, begin, end), m2.slice(0, begin, end),
               v2.slice(0, begin, end));
    add_squared_norm(exec, g.slice(0, begin, end), parts);
  }
  EXPECT_EQ(whole.value(), parts.value());
  for (const auto& [a, b] : {std::pair{&p, &p2}, {&m, &m2}, {&v, &v2}})
    EXPECT_EQ(std::memcmp(std::as_const(*a).data<float>(), std::as_const(*b).data<float>(), kLong * sizeof(float)), 0);
}

template <typename T>
std::vector<T> sgd(Executor& exec, double momentum) {
  Tensor p = random_tensor<T>(exec, {kSize}, 1), buf = random_tensor<T>(exec, {kSize}, 2);
  for (int step = 0; step < 3; ++step)
    sgd_step(exec, 0.1, momentum, 0.01, 0.5, step == 0, p,
             random_tensor<T>(exec, {kSize}, 10 + static_cast<std::uint32_t>(step)),
             momentum == 0 ? TensorView() : buf.view());
  return values<T>(p);
}

TEST(OptimizerStep, SgdAgreesWithTheFormulaOnEveryIsa) {
  for (const double momentum : {0.0, 0.9}) {
    const std::vector<float> got = same_everywhere([&](Executor& exec) { return sgd<float>(exec, momentum); });
    TestExecutor exec;
    const std::vector<double> oracle = sgd<double>(exec, momentum);
    EXPECT_LT(largest_error(got, oracle), 1e-6);
    double p = static_cast<double>(random_value(1, 5)), buf = 0;
    for (int step = 0; step < 3; ++step) {
      const double g = 0.5 * static_cast<double>(random_value(10 + static_cast<std::uint32_t>(step), 5)) + 0.01 * p;
      buf = step == 0 ? g : momentum * buf + g;
      p -= 0.1 * buf;
    }
    EXPECT_NEAR(oracle[5], p, 1e-14);
  }
}

TEST(OptimizerStep, SquaredNormIsExactOverSegments) {
  ExactSum expected;
  for (std::int64_t begin = 0; begin < kSize; begin += 64) {
    double squares = 0;
    for (std::int64_t i = begin; i < std::min(kSize, begin + 64); ++i)
      squares += static_cast<double>(random_value(1, i)) * static_cast<double>(random_value(1, i));
    expected.add(squares);
  }
  for (const std::string& isa : supported_isas()) {
    use_isa(isa);
    for (const std::int64_t cut : {std::int64_t{0}, std::int64_t{64}, std::int64_t{6400}}) {
      TestExecutor exec(2);
      const Tensor x = random_tensor<float>(exec, {kSize}, 1);
      ExactSum sum;
      add_squared_norm(exec, x.slice(0, cut, kSize), sum);
      add_squared_norm(exec, x.slice(0, 0, cut), sum);
      EXPECT_EQ(sum.value(), expected.value()) << isa << " cut at " << cut;
    }
  }
  use_isa("");
  TestExecutor exec;
  ExactSum wide;
  add_squared_norm(exec, random_tensor<double>(exec, {kSize}, 1), wide);
  EXPECT_EQ(wide.value(), expected.value());
}

TEST(OptimizerStep, FindsNonFiniteValuesAndZeros) {
  for (const std::string& isa : supported_isas()) {
    use_isa(isa);
    TestExecutor exec(2);
    Tensor x = random_tensor<float>(exec, {kSize}, 1);
    EXPECT_TRUE(all_finite(exec, x));
    EXPECT_EQ(count_zeros(exec, x), 0);
    for (const std::int64_t at : {std::int64_t{0}, std::int64_t{16383}, kSize - 1}) {
      float& value = x.data<float>()[at];
      const float old = value;
      for (const double bad : {std::nan(""), static_cast<double>(std::numeric_limits<float>::infinity()),
                               -static_cast<double>(std::numeric_limits<float>::infinity())}) {
        value = static_cast<float>(bad);
        EXPECT_FALSE(all_finite(exec, x)) << isa << " at " << at;
      }
      value = std::numeric_limits<float>::max();
      EXPECT_TRUE(all_finite(exec, x));
      value = old;
    }
    x.data<float>()[3] = 0.0F;
    x.data<float>()[kSize - 1] = -0.0F;
    EXPECT_EQ(count_zeros(exec, x), 2) << isa;
  }
  use_isa("");
}

TEST(OptimizerStep, EmptyMetaAndWrongShapes) {
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    for (const std::int64_t size : {0, 100}) {
      Tensor p = exec.zeros({size}, DType::float32), wrong = exec.zeros({size + 1}, DType::float32);
      ExactSum sum;
      adamw_step(exec, adam_step(1), p, p, p, p);
      sgd_step(exec, 0.1, 0, 0, 1, true, p, p, {});
      add_squared_norm(exec, p, sum);
      EXPECT_TRUE(all_finite(exec, p));
      EXPECT_EQ(count_zeros(exec, p), meta ? 0 : size);
      EXPECT_EQ(sum.value(), 0);
      EXPECT_THROW(adamw_step(exec, adam_step(1), p, wrong, p, p), Error);
      EXPECT_THROW(sgd_step(exec, 0.1, 0.9, 0, 1, true, p, p, {}), Error);
    }
    counted[meta ? 1 : 0] = exec.counters().bytes_moved;
  }
  EXPECT_EQ(counted[0], counted[1]);
}

template <typename T>
void check_rounded_weights(int threads, bool adam) {
  TestExecutor exec(threads);
  Tensor p = random_tensor<float>(exec, {kSize}, 1, 0, 3), m = exec.zeros({kSize}, DType::float32);
  Tensor v = exec.zeros({kSize}, DType::float32), rounded = exec.zeros({kSize}, DTypeOf<T>::value);
  Tensor plain = random_tensor<float>(exec, {kSize}, 1, 0, 3), m2 = exec.zeros({kSize}, DType::float32);
  Tensor v2 = exec.zeros({kSize}, DType::float32);
  for (int step = 1; step <= 2; ++step) {
    const Tensor g = random_tensor<float>(exec, {kSize}, 10 + static_cast<std::uint32_t>(step));
    const AdamStep factors{1e-2, 0.9, 0.999, 1e-8, 0.1, 1 - std::pow(0.9, step), 1 - std::pow(0.999, step), 0.5};
    if (adam) {
      adamw_step(exec, factors, p, g, m, v, rounded);
      adamw_step(exec, factors, plain, g, m2, v2);
    } else {
      sgd_step(exec, 0.1, 0.9, 0.01, 0.5, step == 1, p, g, m, rounded);
      sgd_step(exec, 0.1, 0.9, 0.01, 0.5, step == 1, plain, g, m2);
    }
  }
  EXPECT_TRUE(same_bits(values<float>(p), values<float>(plain)));
  EXPECT_TRUE(same_bits(values<float>(m), values<float>(m2)));
  for (std::int64_t i = 0; i < kSize; ++i) ASSERT_EQ(rounded.data<T>()[i].bits, T(p.data<float>()[i]).bits) << i;
}

TEST(OptimizerStepHalf, TheCopyIsTheRoundedWeightAndTheStepStaysWhatItWas) {
  for (const std::string& isa : supported_isas()) {
    use_isa(isa);
    for (const int threads : {1, 4})
      for (const bool adam : {false, true}) {
        check_rounded_weights<BFloat16>(threads, adam);
        check_rounded_weights<Float16>(threads, adam);
      }
  }
  use_isa("");
}

template <typename T>
void check_norm_and_tests() {
  TestExecutor exec(3);
  Tensor x = random_tensor<T>(exec, {kSize}, 1);
  const Tensor wide = make_tensor<float>(
      exec, {kSize}, [&](std::int64_t i) { return static_cast<double>(static_cast<float>(x.data<T>()[i])); });
  ExactSum whole, expected, parts;
  add_squared_norm(exec, x, whole);
  add_squared_norm(exec, wide, expected);
  add_squared_norm(exec, x.slice(0, 0, 6400), parts);
  add_squared_norm(exec, x.slice(0, 6400, kSize), parts);
  EXPECT_EQ(whole.value(), expected.value());
  EXPECT_EQ(whole.value(), parts.value());
  EXPECT_TRUE(all_finite(exec, x));
  EXPECT_EQ(count_zeros(exec, x), count_zeros(exec, wide));
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{16383}, kSize - 1}) {
    const T old = x.data<T>()[at];
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), -1e30F}) {
      x.data<T>()[at] = T(bad);
      EXPECT_EQ(all_finite(exec, x), std::isfinite(static_cast<float>(T(bad)))) << at;
    }
    x.data<T>()[at] = T(0.0F);
    EXPECT_EQ(count_zeros(exec, x), count_zeros(exec, wide) + 1);
    x.data<T>()[at] = old;
  }
}

TEST(OptimizerStepHalf, NormsFiniteTestsAndZeros) {
  for (const std::string& isa : supported_isas()) {
    use_isa(isa);
    check_norm_and_tests<BFloat16>();
    check_norm_and_tests<Float16>();
  }
  use_isa("");
}

TEST(OptimizerStepHalf, RefusesOtherMixesAndCountsAlikeOnMeta) {
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    Tensor p = exec.zeros({100}, DType::float32), b = exec.zeros({100}, DType::bfloat16);
    Tensor d = exec.zeros({100}, DType::float64), shorter = exec.zeros({99}, DType::bfloat16);
    const AdamStep step{1e-2, 0.9, 0.999, 1e-8, 0.1, 0.1, 0.001, 1};
    adamw_step(exec, step, p, p, p, p, b);
    sgd_step(exec, 0.1, 0, 0, 1, true, p, p, {}, b);
    EXPECT_THROW(adamw_step(exec, step, p, p, p, p, shorter), Error);
    EXPECT_THROW(adamw_step(exec, step, p, p, p, p, d), Error);
    EXPECT_THROW(adamw_step(exec, step, d, d, d, d, b), Error);
    EXPECT_THROW(adamw_step(exec, step, b, b, b, b), Error);
    counted[meta ? 1 : 0] = exec.counters().bytes_moved;
  }
  EXPECT_EQ(counted[0], counted[1]);
}

}  // namespace
}  // namespace megatron::kernels
