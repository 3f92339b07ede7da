#include "kernels/optimizer_variants.h"

#include <functional>

#include "half_testing.h"

namespace megatron::kernels {
namespace {

constexpr std::int64_t kSize = 20011;
constexpr int kSteps = 3;

std::uint32_t grad_stream(int step) { return 10 + static_cast<std::uint32_t>(step); }
double grad_at(int step, std::int64_t i) { return static_cast<double>(random_value(grad_stream(step), i)); }
double weight_at(std::int64_t i) { return static_cast<double>(random_value(1, i)); }

template <typename T>
using Update = std::function<void(Executor&, int step, Tensor& p, const Tensor& g, Tensor& first, Tensor& second)>;

/// p and both states after three steps.
template <typename T>
std::vector<T> run(Executor& exec, const Update<T>& update) {
  Tensor p = random_tensor<T>(exec, {kSize}, 1);
  Tensor first = exec.zeros({kSize}, DTypeOf<T>::value), second = exec.zeros({kSize}, DTypeOf<T>::value);
  for (int step = 1; step <= kSteps; ++step)
    update(exec, step, p, random_tensor<T>(exec, {kSize}, grad_stream(step)), first, second);
  std::vector<T> result;
  for (const Tensor* t : {&p, &first, &second})
    for (const T value : values<T>(*t)) result.push_back(value);
  return result;
}

AdamStep adam_step(int step) {
  return {1e-2, 0.9, 0.999, 1e-8, 0.1, 1 - std::pow(0.9, step), 1 - std::pow(0.999, step), 0.5};
}

TEST(OptimizerVariants, AdamWithL2AgreesWithTheFormulaOnEveryIsa) {
  const auto update = [](Executor& exec, int step, Tensor& p, const Tensor& g, Tensor& m, Tensor& v) {
    adam_l2_step(exec, adam_step(step), p, g, m, v);
  };
  const std::vector<float> got = same_everywhere([&](Executor& exec) { return run<float>(exec, update); });
  TestExecutor exec;
  const std::vector<double> oracle = run<double>(exec, update);
  EXPECT_LT(largest_error(got, oracle), 1e-6);
  for (const std::int64_t i : {std::int64_t{0}, std::int64_t{77}, kSize - 1}) {
    double p = weight_at(i), m = 0, v = 0;
    for (int step = 1; step <= kSteps; ++step) {
      const double g = 0.5 * grad_at(step, i) + 0.1 * p;
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      p -= 1e-2 * m / (1 - std::pow(0.9, step)) / (std::sqrt(v / (1 - std::pow(0.999, step))) + 1e-8);
    }
    EXPECT_NEAR(oracle[static_cast<std::size_t>(i)], p, 1e-14);
  }
}

TEST(OptimizerVariants, NesterovAgreesWithTheFormulaOnEveryIsa) {
  const auto update = [](Executor& exec, int step, Tensor& p, const Tensor& g, Tensor& buf, Tensor&) {
    sgd_nesterov_step(exec, {0.1, 0.9, 0.01, 0.5, step == 1}, p, g, buf);
  };
  const std::vector<float> got = same_everywhere([&](Executor& exec) { return run<float>(exec, update); });
  TestExecutor exec;
  const std::vector<double> oracle = run<double>(exec, update);
  EXPECT_LT(largest_error(got, oracle), 1e-6);
  double p = weight_at(5), buf = 0;
  for (int step = 1; step <= kSteps; ++step) {
    const double g = 0.5 * grad_at(step, 5) + 0.01 * p;
    buf = step == 1 ? g : 0.9 * buf + g;
    p -= 0.1 * (g + 0.9 * buf);
  }
  EXPECT_NEAR(oracle[5], p, 1e-14);
}

TEST(OptimizerVariants, LionAgreesWithTheFormulaOnEveryIsa) {
  const auto update = [](Executor& exec, int, Tensor& p, const Tensor& g, Tensor& m, Tensor&) {
    lion_step(exec, {1e-2, 0.95, 0.98, 0.1, 0.5}, p, g, m);
  };
  const std::vector<float> got = same_everywhere([&](Executor& exec) { return run<float>(exec, update); });
  TestExecutor exec;
  const std::vector<double> oracle = run<double>(exec, update);
  EXPECT_LT(largest_error(got, oracle), 1e-6);
  for (const std::int64_t i : {std::int64_t{3}, kSize - 1}) {
    double p = weight_at(i), m = 0;
    for (int step = 1; step <= kSteps; ++step) {
      const double g = 0.5 * grad_at(step, i), mixed = 0.95 * m + 0.05 * g;
      p -= 1e-2 * ((mixed > 0 ? 1 : -1) + 0.1 * p);
      m = 0.98 * m + 0.02 * g;
    }
    EXPECT_NEAR(oracle[static_cast<std::size_t>(i)], p, 1e-14);
    EXPECT_NEAR(oracle[static_cast<std::size_t>(kSize + i)], m, 1e-14);
  }
}

/// An element that never had a gradient has no sign: only the decay moves it.
TEST(OptimizerVariants, LionLeavesElementsWithoutGradient) {
  TestExecutor exec;
  Tensor p = random_tensor<float>(exec, {kSize}, 1), m = exec.zeros({kSize}, DType::float32);
  const Tensor g = exec.zeros({kSize}, DType::float32);
  lion_step(exec, {1e-2, 0.95, 0.98, 0.0, 1.0}, p, g, m);
  for (std::int64_t i = 0; i < kSize; ++i) EXPECT_EQ(p.data<float>()[i], random_value(1, i));
}

TEST(OptimizerVariants, WeightedSum) {
  const auto sum = [](Executor& exec, bool both) {
    const Tensor x = random_tensor<float>(exec, {kSize}, 1), y = random_tensor<float>(exec, {kSize}, 2);
    Tensor out = random_tensor<float>(exec, {kSize}, 3);
    weighted_sum(exec, 0.25, x, -3.0, both ? y.view_const() : ConstTensorView(), out);
    return values<float>(out);
  };
  for (const bool both : {false, true}) {
    const std::vector<float> got = same_everywhere([&](Executor& exec) { return sum(exec, both); });
    for (const std::int64_t i : {std::int64_t{0}, std::int64_t{1000}, kSize - 1}) {
      const double expected =
          0.25 * static_cast<double>(random_value(1, i)) - (both ? 3.0 * static_cast<double>(random_value(2, i)) : 0.0);
      EXPECT_NEAR(got[static_cast<std::size_t>(i)], expected, 1e-6 * std::abs(expected) + 1e-7);
    }
  }
  TestExecutor exec;
  Tensor in_place = random_tensor<float>(exec, {kSize}, 1);
  weighted_sum(exec, 0.25, in_place, -3.0, random_tensor<float>(exec, {kSize}, 2), in_place);
  EXPECT_EQ(values<float>(in_place), sum(exec, true));
}

template <typename T>
void check_rounded_weights(const std::function<void(Executor&, Tensor&, const Tensor&, Tensor&, TensorView)>& update) {
  for (const std::string& isa : supported_isas()) {
    use_isa(isa);
    TestExecutor exec(3);
    Tensor p = random_tensor<float>(exec, {kSize}, 1, 0, 3), plain = random_tensor<float>(exec, {kSize}, 1, 0, 3);
    Tensor m = random_tensor<float>(exec, {kSize}, 2), m2 = random_tensor<float>(exec, {kSize}, 2);
    Tensor rounded = exec.zeros({kSize}, DTypeOf<T>::value);
    const Tensor g = random_tensor<float>(exec, {kSize}, 3);
    update(exec, p, g, m, rounded);
    update(exec, plain, g, m2, {});
    EXPECT_EQ(values<float>(p), values<float>(plain));
    EXPECT_EQ(values<float>(m), values<float>(m2));
    for (std::int64_t i = 0; i < kSize; ++i) ASSERT_EQ(rounded.data<T>()[i].bits, T(p.data<float>()[i]).bits) << isa;
    Tensor wide = exec.zeros({kSize}, DType::float64), longer = exec.zeros({kSize + 1}, DTypeOf<T>::value);
    EXPECT_THROW(update(exec, p, g, m, wide), Error);
    EXPECT_THROW(update(exec, p, g, m, longer), Error);
  }
  use_isa("");
}

TEST(OptimizerVariants, TheCopyIsTheRoundedWeightAndTheStepStaysWhatItWas) {
  const auto all = [](auto type) {
    using T = decltype(type);
    check_rounded_weights<T>([](Executor& exec, Tensor& p, const Tensor& g, Tensor& m, TensorView rounded) {
      Tensor v = exec.zeros({kSize}, DType::float32);
      adam_l2_step(exec, adam_step(2), p, g, m, v, rounded);
    });
    check_rounded_weights<T>([](Executor& exec, Tensor& p, const Tensor& g, Tensor& m, TensorView rounded) {
      sgd_nesterov_step(exec, {0.1, 0.9, 0.01, 0.5, false}, p, g, m, rounded);
    });
    check_rounded_weights<T>([](Executor& exec, Tensor& p, const Tensor& g, Tensor& m, TensorView rounded) {
      lion_step(exec, {1e-2, 0.95, 0.98, 0.1, 0.5}, p, g, m, rounded);
    });
    check_rounded_weights<T>([](Executor& exec, Tensor& p, const Tensor& g, Tensor&, TensorView rounded) {
      weighted_sum(exec, 0.9, p, -0.1, g, p, rounded);
    });
  };
  all(BFloat16());
  all(Float16());
}

/// The same bytes are counted with and without memory.
TEST(OptimizerVariants, CountAlikeOnMeta) {
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    Tensor p = exec.zeros({100}, DType::float32), wrong = exec.zeros({101}, DType::float32);
    adam_l2_step(exec, adam_step(1), p, p, p, p);
    sgd_nesterov_step(exec, {0.1, 0.9, 0, 1, true}, p, p, p);
    lion_step(exec, {0.1, 0.9, 0.9, 0, 1}, p, p, p);
    weighted_sum(exec, 1, p, 1, p, p);
    EXPECT_THROW(lion_step(exec, {0.1, 0.9, 0.9, 0, 1}, p, wrong, p), Error);
    EXPECT_THROW(weighted_sum(exec, 1, p, 1, wrong, p), Error);
    counted[meta ? 1 : 0] = exec.counters().bytes_moved;
  }
  EXPECT_EQ(counted[0], counted[1]);
  // Read and written: 7, 5, 5 and 3 operands.
  EXPECT_EQ(counted[0], 400 * (7 + 5 + 5 + 3));
}

}  // namespace
}  // namespace megatron::kernels
