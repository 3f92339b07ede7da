#include "kernels/norm.h"

#include "half_testing.h"

namespace megatron::kernels {
namespace {

struct Outputs {
  std::vector<double> y, mean, rstd, dx, dgamma, dbeta;
  std::vector<float> all;  // of fp32 runs
};

template <typename T>
std::vector<double> widened(const Tensor& t) {
  const auto v = values<T>(t);
  return {v.begin(), v.end()};
}

template <typename T>
Outputs run(Executor& exec, NormKind kind, bool with_beta, std::int64_t rows, std::int64_t hidden,
            std::int64_t padding) {
  const DType dtype = DTypeOf<T>::value;
  const Tensor x = make_tensor<T>(
      exec, {rows, hidden}, [](std::int64_t i) { return 3 + 2 * static_cast<double>(random_value(1, i)); }, padding);
  const Tensor dy = random_tensor<T>(exec, {rows, hidden}, 2, padding);
  const Tensor gamma = random_tensor<T>(exec, {hidden}, 3), beta = random_tensor<T>(exec, {hidden}, 4);
  Tensor y = random_tensor<T>(exec, {rows, hidden}, 5, padding),
         dx = random_tensor<T>(exec, {rows, hidden}, 6, padding);
  Tensor mean = exec.zeros({rows}, dtype), rstd = exec.zeros({rows}, dtype);
  Tensor dgamma = random_tensor<T>(exec, {hidden}, 7), dbeta = random_tensor<T>(exec, {hidden}, 8);
  const bool centred = kind == NormKind::layer_norm;
  norm_forward(exec, kind, x, gamma, with_beta ? beta.view_const() : ConstTensorView(), 1e-5, y,
               centred ? mean.view() : TensorView(), rstd);
  norm_backward(exec, kind, dy, x, gamma, centred ? mean.view_const() : ConstTensorView(), rstd, dx, dgamma,
                with_beta ? dbeta.view() : TensorView());
  Outputs out{
      widened<T>(y), widened<T>(mean), widened<T>(rstd), widened<T>(dx), widened<T>(dgamma), widened<T>(dbeta), {}};
  for (const auto* part : {&out.y, &out.mean, &out.rstd, &out.dx, &out.dgamma, &out.dbeta})
    for (const double value : *part) out.all.push_back(static_cast<float>(value));
  return out;
}

TEST(Norm, AgreesWithTheOracleAndEveryIsa) {
  const std::int64_t shapes[][2] = {{1, 1}, {5, 17}, {200, 48}, {130, 67}, {3, 1000}};
  for (const auto kind : {NormKind::layer_norm, NormKind::rms_norm})
    for (const bool with_beta : {false, true})
      for (const auto& s : shapes) {
        TestExecutor exec;
        const Outputs oracle = run<double>(exec, kind, with_beta, s[0], s[1], 0);
        const Outputs got = run<float>(exec, kind, with_beta, s[0], s[1], 0);
        if (s[1] > 1) {  // a row of one element has variance 0
          EXPECT_LT(relative_rms(got.y, oracle.y), 3e-7);
          EXPECT_LT(relative_rms(got.rstd, oracle.rstd), 3e-7);
          EXPECT_LT(relative_rms(got.dx, oracle.dx), 1e-6);
          EXPECT_LT(relative_rms(got.dgamma, oracle.dgamma), 1e-6);
        }
        EXPECT_LT(relative_rms(got.dbeta, oracle.dbeta), 1e-6);
        const std::vector<float> everywhere = same_everywhere([&](Executor& e) {
          const Outputs result = run<float>(e, kind, with_beta, s[0], s[1], 0);
          EXPECT_TRUE(same_bits(result.all, run<float>(e, kind, with_beta, s[0], s[1], 5).all));
          return result.all;
        });
        EXPECT_TRUE(same_bits(everywhere, got.all));
      }
}

TEST(Norm, OracleGradientsAreTheDerivatives) {
  TestExecutor exec;
  const std::int64_t rows = 3, hidden = 7;
  for (const auto kind : {NormKind::layer_norm, NormKind::rms_norm}) {
    // moved: an element of x, then of gamma, then of beta.
    const auto loss = [&](std::int64_t moved, double by) {
      const auto part = [&](std::uint32_t stream, std::int64_t offset) {
        return [=](std::int64_t i) {
          return static_cast<double>(random_value(stream, i)) + (i + offset == moved ? by : 0);
        };
      };
      const Tensor x = make_tensor<double>(exec, {rows, hidden}, part(1, 0));
      const Tensor gamma = make_tensor<double>(exec, {hidden}, part(3, rows * hidden));
      const Tensor beta = make_tensor<double>(exec, {hidden}, part(4, rows * hidden + hidden));
      Tensor y = exec.empty({rows, hidden}, DType::float64), mean = exec.empty({rows}, DType::float64);
      Tensor rstd = exec.empty({rows}, DType::float64);
      norm_forward(exec, kind, x, gamma, beta, 1e-3, y, mean, rstd);
      double sum = 0;
      for (std::int64_t i = 0; i < rows * hidden; ++i)
        sum += y.data<double>()[i] * static_cast<double>(random_value(2, i));
      return sum;
    };
    const Tensor x = random_tensor<double>(exec, {rows, hidden}, 1),
                 dy = random_tensor<double>(exec, {rows, hidden}, 2);
    const Tensor gamma = random_tensor<double>(exec, {hidden}, 3), beta = random_tensor<double>(exec, {hidden}, 4);
    Tensor y = exec.empty({rows, hidden}, DType::float64), dx = exec.empty({rows, hidden}, DType::float64);
    Tensor mean = exec.empty({rows}, DType::float64), rstd = exec.empty({rows}, DType::float64);
    Tensor dgamma = exec.zeros({hidden}, DType::float64), dbeta = exec.zeros({hidden}, DType::float64);
    norm_forward(exec, kind, x, gamma, beta, 1e-3, y, mean, rstd);
    norm_backward(exec, kind, dy, x, gamma, mean, rstd, dx, dgamma, dbeta);
    std::vector<double> got = values<double>(dx);
    for (const Tensor* part : {&dgamma, &dbeta})
      for (const double value : values<double>(*part)) got.push_back(value);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      EXPECT_NEAR(got[i], (loss(at, 1e-5) - loss(at, -1e-5)) / 2e-5, 1e-8) << i;
    }
  }
}

TEST(Norm, AddsToWeightGradientsAndMayOverwriteDy) {
  TestExecutor exec;
  const Tensor x = random_tensor<float>(exec, {70, 32}, 1), gamma = random_tensor<float>(exec, {32}, 3);
  Tensor dy = random_tensor<float>(exec, {70, 32}, 2), dx = exec.empty({70, 32}, DType::float32);
  Tensor y = exec.empty({70, 32}, DType::float32), rstd = exec.empty({70}, DType::float32);
  norm_forward(exec, NormKind::rms_norm, x, gamma, {}, 1e-5, y, {}, rstd);
  Tensor once = exec.zeros({32}, DType::float32), twice = exec.zeros({32}, DType::float32);
  norm_backward(exec, NormKind::rms_norm, dy, x, gamma, {}, rstd, dx, once, {});
  norm_backward(exec, NormKind::rms_norm, dy, x, gamma, {}, rstd, dx, twice, {});
  norm_backward(exec, NormKind::rms_norm, dy, x, gamma, {}, rstd, dy, twice, {});
  EXPECT_TRUE(same_bits(values<float>(dx), values<float>(dy)));
  for (std::int64_t i = 0; i < 32; ++i) EXPECT_EQ(twice.data<float>()[i], 2 * once.data<float>()[i]);
}

TEST(Norm, EmptyAndMetaInputs) {
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    for (const std::int64_t rows : {0, 9}) {
      Tensor x = exec.zeros({rows, 8}, DType::float32), w = exec.zeros({8}, DType::float32);
      Tensor s = exec.zeros({rows}, DType::float32), wrong = exec.zeros({rows + 1}, DType::float32);
      norm_forward(exec, NormKind::layer_norm, x, w, w, 1e-5, x, s, s);
      norm_backward(exec, NormKind::layer_norm, x, x, w, s, s, x, w, w);
      EXPECT_THROW(norm_forward(exec, NormKind::layer_norm, x, w, w, 1e-5, x, wrong, s), Error);
    }
    counted[meta ? 1 : 0] = exec.counters().bytes_moved;
  }
  EXPECT_EQ(counted[0], counted[1]);
  EXPECT_GT(counted[0], 0);
}

template <typename TwinT>
std::vector<float> run_twin(const TwinT& twin, Executor& exec, NormKind kind, bool with_beta, bool wide_stream,
                            std::int64_t rows, std::int64_t hidden) {
  const auto off_centre = [](std::int64_t i) { return 3 + 2 * static_cast<double>(random_value(1, i)); };
  const Shape shape{rows, hidden};
  const Tensor x = wide_stream ? make_tensor<float>(exec, shape, off_centre, 2) : twin.made(exec, shape, off_centre, 2);
  const Tensor dy = twin.random(exec, shape, 2, 5);
  const Tensor gamma = twin.random(exec, {hidden}, 3), beta = twin.random(exec, {hidden}, 4);
  Tensor y = twin.empty(exec, shape), dx = wide_stream ? exec.empty(shape, DType::float32) : twin.empty(exec, shape);
  Tensor mean = exec.zeros({rows}, DType::float32), rstd = exec.zeros({rows}, DType::float32);
  Tensor dgamma = random_tensor<float>(exec, {hidden}, 7), dbeta = random_tensor<float>(exec, {hidden}, 8);
  const bool centred = kind == NormKind::layer_norm;
  norm_forward(exec, kind, x, gamma, with_beta ? beta.view_const() : ConstTensorView(), 1e-5, y,
               centred ? mean.view() : TensorView(), rstd);
  norm_backward(exec, kind, dy, x, gamma, centred ? mean.view_const() : ConstTensorView(), rstd, dx, dgamma,
                with_beta ? dbeta.view() : TensorView());
  std::vector<float> result;
  twin.read(result, y);
  if (wide_stream)
    append(result, values<float>(dx));
  else
    twin.read(result, dx);
  for (const Tensor* part : {&mean, &rstd, &dgamma, &dbeta}) append(result, values<float>(*part));
  return result;
}

TEST(NormHalf, IsTheFloatKernelRoundedOnce) {
  const std::int64_t shapes[][2] = {{1, 1}, {5, 7}, {130, 33}, {70, 127}, {3, 1000}};
  for (const auto kind : {NormKind::layer_norm, NormKind::rms_norm})
    for (const bool wide_stream : {false, true})
      for (const auto& s : shapes)
        expect_rounded_results([&](auto twin, Executor& exec) {
          return run_twin(twin, exec, kind, kind == NormKind::layer_norm, wide_stream, s[0], s[1]);
        });
}

TEST(NormHalf, MayOverwriteDy) {
  TestExecutor exec;
  const Tensor x = random_tensor<BFloat16>(exec, {70, 33}, 1), gamma = random_tensor<BFloat16>(exec, {33}, 3);
  Tensor dy = random_tensor<BFloat16>(exec, {70, 33}, 2), dx = exec.empty({70, 33}, DType::bfloat16);
  Tensor y = exec.empty({70, 33}, DType::bfloat16), rstd = exec.empty({70}, DType::float32);
  Tensor dgamma = exec.zeros({33}, DType::float32);
  norm_forward(exec, NormKind::rms_norm, x, gamma, {}, 1e-5, y, {}, rstd);
  norm_backward(exec, NormKind::rms_norm, dy, x, gamma, {}, rstd, dx, dgamma, {});
  norm_backward(exec, NormKind::rms_norm, dy, x, gamma, {}, rstd, dy, dgamma, {});
  for (std::int64_t i = 0; i < dx.numel(); ++i)
    ASSERT_EQ(dx.data<BFloat16>()[i].bits, dy.data<BFloat16>()[i].bits) << i;
}

TEST(NormHalf, RefusesOtherMixesAndCountsAlikeOnMeta) {
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    Tensor x = exec.zeros({9, 8}, DType::bfloat16), f = exec.zeros({9, 8}, DType::float32);
    Tensor w = exec.zeros({8}, DType::bfloat16), g = exec.zeros({8}, DType::float32);
    Tensor s = exec.zeros({9}, DType::float32), narrow = exec.zeros({9}, DType::bfloat16);
    norm_forward(exec, NormKind::layer_norm, x, w, w, 1e-5, x, s, s);
    norm_forward(exec, NormKind::rms_norm, f, w, {}, 1e-5, x, {}, s);
    norm_backward(exec, NormKind::layer_norm, x, f, w, s, s, f, g, g);
    EXPECT_THROW(norm_forward(exec, NormKind::layer_norm, x, g, g, 1e-5, x, s, s), Error);
    EXPECT_THROW(norm_forward(exec, NormKind::layer_norm, x, w, w, 1e-5, x, narrow, s), Error);
    EXPECT_THROW(norm_forward(exec, NormKind::rms_norm, x, g, {}, 1e-5, f, {}, s), Error);
    EXPECT_THROW(norm_backward(exec, NormKind::rms_norm, x, x, w, {}, s, x, w, {}), Error);
    counted[meta ? 1 : 0] = exec.counters().bytes_moved;
  }
  EXPECT_EQ(counted[0], counted[1]);
}

}  // namespace
}  // namespace megatron::kernels
