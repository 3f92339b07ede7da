#include "kernels/activation.h"

#include "half_testing.h"

namespace megatron::kernels {
namespace {

const ActivationKind kKinds[] = {ActivationKind::gelu_tanh, ActivationKind::gelu_erf, ActivationKind::squared_relu,
                                 ActivationKind::silu};

// Inputs from −9 to 9 that fp32 holds exactly, among them 0 and tiny numbers.
template <typename T>
Tensor inputs(Executor& exec, const Shape& shape, std::int64_t padding) {
  return make_tensor<T>(
      exec, shape,
      [](std::int64_t i) {
        if (i % 50 == 0) return 0.0;
        if (i % 50 == 1) return 0x1p-20;
        return static_cast<double>(9.0F * random_value(4, i));
      },
      padding);
}

template <typename T>
std::vector<T> run(Executor& exec, ActivationKind kind, bool gated, bool backward, std::int64_t rows,
                   std::int64_t width, std::int64_t padding) {
  const Tensor x = inputs<T>(exec, {rows, gated ? 2 * width : width}, padding);
  const Tensor dy = random_tensor<T>(exec, {rows, width}, 5, padding);
  Tensor out = random_tensor<T>(exec, {rows, backward && gated ? 2 * width : width}, 6, padding);
  if (backward)
    gated ? gated_activation_backward(exec, kind, dy, x, out) : activation_backward(exec, kind, dy, x, out);
  else
    gated ? gated_activation_forward(exec, kind, x, out) : activation_forward(exec, kind, x, out);
  return values<T>(out);
}

TEST(Activation, AgreesWithTheOracleAndEveryIsa) {
  for (const ActivationKind kind : kKinds)
    for (const bool gated : {false, true})
      for (const bool backward : {false, true}) {
        TestExecutor exec;
        const std::vector<double> oracle = run<double>(exec, kind, gated, backward, 37, 83, 0);
        const std::vector<float> got = same_everywhere([&](Executor& e) {
          std::vector<float> result = run<float>(e, kind, gated, backward, 37, 83, 0);
          EXPECT_TRUE(same_bits(result, run<float>(e, kind, gated, backward, 37, 83, 3)));
          return result;
        });
        // Inputs reach 9, so that a rounding of the argument alone is worth some units in the last place.
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], oracle[i], 1e-6 + 6e-7 * std::abs(oracle[i]))
              << "kind " << static_cast<int>(kind) << " gated " << gated << " backward " << backward << " at " << i;
      }
}

TEST(Activation, GeluKeepsRelativeAccuracyInTheTail) {
  TestExecutor exec;
  for (const auto kind : {ActivationKind::gelu_erf, ActivationKind::gelu_tanh, ActivationKind::silu}) {
    const auto at = [](std::int64_t i) { return -4.0 + 8.0 * static_cast<double>(i) / 4000; };
    const Tensor x = make_tensor<float>(exec, {1, 4001}, at);
    // The oracle gets the rounded inputs.
    const std::vector<float> rounded = values<float>(x);
    const Tensor x64 = make_tensor<double>(
        exec, {1, 4001}, [&](std::int64_t i) { return static_cast<double>(rounded[static_cast<std::size_t>(i)]); });
    Tensor y = exec.empty({1, 4001}, DType::float32), y64 = exec.empty({1, 4001}, DType::float64);
    activation_forward(exec, kind, x, y);
    activation_forward(exec, kind, x64, y64);
    const auto a = values<float>(y);
    const auto b = values<double>(y64);
    double worst = 0;
    for (std::size_t i = 0; i < a.size(); ++i)
      if (b[i] != 0) worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]) / std::abs(b[i]));
    EXPECT_LT(worst, 2.5e-6) << static_cast<int>(kind);  // e^u with |u| up to 9: u's rounding counts ninefold
  }
}

TEST(Activation, OracleGradientsAreTheDerivatives) {
  TestExecutor exec;
  for (const ActivationKind kind : kKinds)
    for (const bool gated : {false, true}) {
      const std::int64_t width = 20, inner = gated ? 40 : 20;
      const Tensor dy = random_tensor<double>(exec, {3, width}, 8);
      const auto loss = [&](std::int64_t moved, double by) {
        const Tensor x = make_tensor<double>(exec, {3, inner}, [&](std::int64_t i) {
          return 3 * static_cast<double>(random_value(9, i)) + (i == moved ? by : 0);
        });
        Tensor y = exec.empty({3, width}, DType::float64);
        gated ? gated_activation_forward(exec, kind, x, y) : activation_forward(exec, kind, x, y);
        double sum = 0;
        const auto ys = values<double>(y), dys = values<double>(dy);
        for (std::size_t i = 0; i < ys.size(); ++i) sum += ys[i] * dys[i];
        return sum;
      };
      const Tensor x = make_tensor<double>(exec, {3, inner},
                                           [](std::int64_t i) { return 3 * static_cast<double>(random_value(9, i)); });
      Tensor dx = exec.empty({3, inner}, DType::float64);
      gated ? gated_activation_backward(exec, kind, dy, x, dx) : activation_backward(exec, kind, dy, x, dx);
      const auto got = values<double>(dx);
      for (std::int64_t i = 0; i < 3 * inner; ++i)
        EXPECT_NEAR(got[static_cast<std::size_t>(i)], (loss(i, 1e-5) - loss(i, -1e-5)) / 2e-5, 1e-8);
    }
}

TEST(Activation, MayWriteOverItsInput) {
  TestExecutor exec(2);
  Tensor x = inputs<float>(exec, {5, 64}, 0), y = exec.empty({5, 64}, DType::float32);
  activation_forward(exec, ActivationKind::silu, x, y);
  activation_forward(exec, ActivationKind::silu, x, x);
  EXPECT_TRUE(same_bits(values<float>(x), values<float>(y)));
  Tensor gated = inputs<float>(exec, {5, 64}, 0), dx = exec.empty({5, 64}, DType::float32);
  const Tensor dy = random_tensor<float>(exec, {5, 32}, 3);
  gated_activation_backward(exec, ActivationKind::gelu_tanh, dy, gated, dx);
  gated_activation_backward(exec, ActivationKind::gelu_tanh, dy, gated, gated);
  EXPECT_TRUE(same_bits(values<float>(gated), values<float>(dx)));
}

TEST(Activation, NanStaysNanAndEmptyInputsPass) {
  TestExecutor exec;
  for (const ActivationKind kind : kKinds) {
    Tensor x = make_tensor<float>(exec, {1, 3}, [](std::int64_t i) { return i == 1 ? std::nan("") : 1.0; });
    Tensor y = exec.empty({1, 3}, DType::float32);
    activation_forward(exec, kind, x, y);
    EXPECT_TRUE(std::isnan(y.data<float>()[1]));
    EXPECT_TRUE(std::isfinite(y.data<float>()[0]) && std::isfinite(y.data<float>()[2]));
    Tensor none = exec.empty({0, 8}, DType::float32), half = exec.empty({0, 4}, DType::float32);
    EXPECT_NO_THROW(activation_forward(exec, kind, none, none));
    EXPECT_NO_THROW(gated_activation_forward(exec, kind, none, half));
    EXPECT_NO_THROW(gated_activation_backward(exec, kind, half, none, none));
  }
}

TEST(Activation, ChecksShapesAndCountsOnMeta) {
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    Tensor x = exec.zeros({4, 6}, DType::float32), y = exec.zeros({4, 3}, DType::float32);
    gated_activation_forward(exec, ActivationKind::silu, x, y);
    EXPECT_THROW(activation_forward(exec, ActivationKind::silu, x, y), Error);
    EXPECT_THROW(gated_activation_forward(exec, ActivationKind::silu, y, x), Error);
    counted[meta ? 1 : 0] = exec.counters().bytes_moved;
  }
  EXPECT_EQ(counted[0], (24 + 12) * 4);
  EXPECT_EQ(counted[0], counted[1]);
}

TEST(ActivationHalf, IsTheFloatKernelRoundedOnce) {
  for (const auto kind : kKinds)
    for (const std::int64_t width : {1, 7, 33, 127, 525})
      expect_rounded_results([&](auto twin, Executor& exec) {
        std::vector<float> result;
        const Tensor x = twin.random(exec, {23, 2 * width}, 1, 3, 8), dy = twin.random(exec, {23, 2 * width}, 2, 1);
        const Tensor half_dy = twin.random(exec, {23, width}, 3);
        Tensor y = twin.empty(exec, {23, 2 * width}), gated = twin.empty(exec, {23, width});
        activation_forward(exec, kind, x, y);
        twin.read(result, y);
        activation_backward(exec, kind, dy, x, y);
        twin.read(result, y);
        gated_activation_forward(exec, kind, x, gated);
        twin.read(result, gated);
        gated_activation_backward(exec, kind, half_dy, x, y);
        twin.read(result, y);
        return result;
      });
}

TEST(ActivationHalf, LargeFloat16ResultsAreInfinite) {
  TestExecutor exec;
  const Tensor x = make_tensor<Float16>(exec, {1, 5}, [](std::int64_t) { return 300.0; });
  Tensor y = exec.empty({1, 5}, DType::float16);
  activation_forward(exec, ActivationKind::squared_relu, x, y);
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_TRUE(std::isinf(static_cast<float>(y.data<Float16>()[i])));
  Tensor wide = exec.empty({1, 5}, DType::float32);
  EXPECT_THROW(activation_forward(exec, ActivationKind::silu, x, wide), Error);
}

}  // namespace
}  // namespace megatron::kernels
