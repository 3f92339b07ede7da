#include "kernels/cross_entropy.h"

#include <limits>

#include "half_testing.h"

namespace megatron::kernels {
namespace {

struct Shard {
  std::int64_t rows, columns, valid, first;
};

const std::int64_t kLabels[] = {0, 5, 17, 40, 99, 101, 30};

template <typename T>
struct Pieces {
  Tensor logits, max, sum, target;
  Pieces(Executor& exec, const Shard& s, std::int64_t padding) {
    logits = random_tensor<T>(exec, {s.rows, s.columns}, 1, padding, 8);
    const DType dtype = DTypeOf<T>::value;
    max = exec.zeros({s.rows}, dtype), sum = exec.zeros({s.rows}, dtype), target = exec.zeros({s.rows}, dtype);
    row_max(exec, logits, s.valid, max);
    softmax_statistics(exec, logits, s.valid, max, kLabels, s.first, sum, target);
  }
};

template <typename T>
std::vector<T> run(Executor& exec, const Shard& s, std::int64_t padding) {
  Pieces<T> p(exec, s, padding);
  const Tensor seed = random_tensor<T>(exec, {s.rows}, 2);
  std::vector<T> result;
  for (const Tensor* t : {&p.max, &p.sum, &p.target})
    for (const T value : values<T>(*t)) result.push_back(value);
  softmax_gradient_in_place(exec, p.logits, s.valid, p.max, p.sum, kLabels, s.first, seed);
  for (const T value : values<T>(p.logits)) result.push_back(value);
  return result;
}

TEST(CrossEntropy, AgreesWithTheOracleOnEveryIsa) {
  for (const Shard& s : {Shard{7, 103, 103, 0}, Shard{7, 64, 53, 16}, Shard{3, 5, 1, 5}, Shard{5, 300, 299, 0}}) {
    TestExecutor exec;
    const std::vector<double> oracle = run<double>(exec, s, 0);
    const std::vector<float> got = same_everywhere([&](Executor& e) {
      std::vector<float> result = run<float>(e, s, 0);
      EXPECT_TRUE(same_bits(result, run<float>(e, s, 3)));
      return result;
    });
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], oracle[i], 1e-6 * std::max(1.0, std::abs(oracle[i]))) << "of " << s.columns << " at " << i;
  }
}

TEST(CrossEntropy, OracleGradientIsTheDerivativeOfTheLoss) {
  TestExecutor exec;
  const Shard s{7, 103, 103, 0};
  const auto loss = [&](std::int64_t moved, double by) {
    Tensor logits = random_tensor<double>(exec, {s.rows, s.columns}, 1, 0, 3);
    logits.data<double>()[moved] += by;
    Tensor max = exec.empty({s.rows}, DType::float64), sum = exec.empty({s.rows}, DType::float64);
    Tensor target = exec.empty({s.rows}, DType::float64);
    row_max(exec, logits, s.valid, max);
    softmax_statistics(exec, logits, s.valid, max, kLabels, 0, sum, target);
    double total = 0;
    for (std::int64_t t = 0; t < s.rows; ++t)
      total += static_cast<double>(random_value(2, t)) * (std::log(sum.data<double>()[t]) - target.data<double>()[t]);
    return total;
  };
  Tensor logits = random_tensor<double>(exec, {s.rows, s.columns}, 1, 0, 3);
  Tensor max = exec.empty({s.rows}, DType::float64), sum = exec.empty({s.rows}, DType::float64);
  Tensor target = exec.empty({s.rows}, DType::float64);
  const Tensor seed = random_tensor<double>(exec, {s.rows}, 2);
  row_max(exec, logits, s.valid, max);
  softmax_statistics(exec, logits, s.valid, max, kLabels, 0, sum, target);
  softmax_gradient_in_place(exec, logits, s.valid, max, sum, kLabels, 0, seed);
  for (std::int64_t i = 0; i < s.rows * s.columns; i += 5)
    EXPECT_NEAR(logits.data<double>()[i], (loss(i, 1e-5) - loss(i, -1e-5)) / 2e-5, 1e-8) << i;
}

TEST(CrossEntropy, ARowWithSeedZeroIsExactlyZeroWhateverItHolds) {
  for (const std::string& isa : supported_isas()) {
    use_isa(isa);
    TestExecutor exec;
    Tensor logits = make_tensor<float>(exec, {2, 40}, [](std::int64_t i) { return i < 40 ? std::nan("") : 1.0; });
    Tensor stats = make_tensor<float>(exec, {2}, [](std::int64_t i) { return i == 0 ? std::nan("") : 40.0; });
    const Tensor max = make_tensor<float>(exec, {2}, [](std::int64_t i) { return i == 0 ? std::nan("") : 1.0; });
    const Tensor seed = make_tensor<float>(exec, {2}, [](std::int64_t i) { return i == 0 ? 0.0 : 1.0; });
    softmax_gradient_in_place(exec, logits, 33, max, stats, kLabels, 0, seed);
    const auto got = values<float>(logits);
    for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(got[i], 0.0F);
    for (std::size_t i = 40; i < 80; ++i) EXPECT_TRUE(std::isfinite(got[i]));
    for (std::size_t i = 73; i < 80; ++i) EXPECT_EQ(got[i], 0.0F);  // padded columns
  }
  use_isa("");
}

TEST(CrossEntropy, UniformLogitsGiveTheLogarithmOfTheVocabulary) {
  TestExecutor exec;
  Tensor logits = exec.zeros({7, 128}, DType::float32), max = exec.zeros({7}, DType::float32);
  Tensor sum = exec.zeros({7}, DType::float32), target = exec.zeros({7}, DType::float32);
  row_max(exec, logits, 103, max);
  softmax_statistics(exec, logits, 103, max, kLabels, 0, sum, target);
  EXPECT_EQ(values<float>(sum), std::vector<float>(7, 103.0F));
  EXPECT_EQ(values<float>(target), std::vector<float>(7, 0.0F));
}

TEST(CrossEntropy, AShardWithoutValidColumns) {
  TestExecutor exec;
  Tensor logits = random_tensor<float>(exec, {2, 8}, 1), max = exec.zeros({2}, DType::float32);
  Tensor sum = random_tensor<float>(exec, {2}, 2), target = random_tensor<float>(exec, {2}, 3);
  row_max(exec, logits, 0, max);
  EXPECT_EQ(max.data<float>()[0], -std::numeric_limits<float>::infinity());
  const Tensor other = exec.zeros({2}, DType::float32);
  softmax_statistics(exec, logits, 0, other, kLabels, 0, sum, target);
  EXPECT_EQ(values<float>(sum), std::vector<float>(2, 0.0F));
  EXPECT_EQ(values<float>(target), std::vector<float>(2, 0.0F));
}

TEST(CrossEntropy, EmptyAndMetaInputs) {
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    for (const std::int64_t rows : {0, 4}) {
      Tensor logits = exec.zeros({rows, 9}, DType::float32), row = exec.zeros({rows}, DType::float32);
      const std::int64_t* labels = meta ? nullptr : kLabels;
      row_max(exec, logits, 9, row);
      softmax_statistics(exec, logits, 9, row, labels, 0, row, row);
      softmax_gradient_in_place(exec, logits, 9, row, row, labels, 0, row);
      EXPECT_THROW(row_max(exec, logits, 10, row), Error);
    }
    counted[meta ? 1 : 0] = exec.counters().bytes_moved;
  }
  EXPECT_EQ(counted[0], counted[1]);
  EXPECT_GT(counted[0], 0);
}

TEST(CrossEntropyHalf, StatisticsAreExactlyTheFloatKernelsAndTheGradientIsRoundedOnce) {
  constexpr std::int64_t kRows = 37, kFirst = 3;
  for (const std::int64_t width : {1, 7, 33, 127, 1000})
    for (const std::int64_t valid : {width, width * 3 / 4}) {
      std::vector<std::int64_t> labels;
      for (std::int64_t t = 0; t < kRows; ++t) labels.push_back(t * 31 % (width + 8));
      expect_rounded_results([&](auto twin, Executor& exec) {
        std::vector<float> result;
        Tensor logits = twin.random(exec, {kRows, width}, 1, 3, 20);
        Tensor max = exec.zeros({kRows}, DType::float32), sum = exec.zeros({kRows}, DType::float32);
        Tensor target = exec.zeros({kRows}, DType::float32);
        const Tensor seed =
            make_tensor<float>(exec, {kRows}, [](std::int64_t i) { return i % 5 == 0 ? 0.0 : 0.25 * i; });
        row_max(exec, logits, valid, max);
        softmax_statistics(exec, logits, valid, max, labels.data(), kFirst, sum, target);
        for (const Tensor* part : {&max, &sum, &target}) append(result, values<float>(*part));
        softmax_gradient_in_place(exec, logits, valid, max, sum, labels.data(), kFirst, seed);
        twin.read(result, logits);
        return result;
      });
    }
}

// Against the formula in double: half a unit in the last place of bfloat16 and what float32 adds.
TEST(CrossEntropyHalf, GradientAgreesWithTheFormula) {
  constexpr std::int64_t kWidth = 50;
  TestExecutor exec;
  Tensor logits = random_tensor<BFloat16>(exec, {1, kWidth}, 1, 0, 4);
  const std::vector<BFloat16> before = values<BFloat16>(logits);
  Tensor max = exec.zeros({1}, DType::float32), sum = exec.zeros({1}, DType::float32);
  Tensor target = exec.zeros({1}, DType::float32);
  const Tensor seed = make_tensor<float>(exec, {1}, [](std::int64_t) { return 3.0; });
  const std::int64_t label = 17;
  row_max(exec, logits, kWidth, max);
  softmax_statistics(exec, logits, kWidth, max, &label, 0, sum, target);
  softmax_gradient_in_place(exec, logits, kWidth, max, sum, &label, 0, seed);
  double total = 0;
  for (const BFloat16 x : before) total += std::exp(static_cast<double>(static_cast<float>(x)));
  for (std::int64_t v = 0; v < kWidth; ++v) {
    const double x = static_cast<double>(static_cast<float>(before[static_cast<std::size_t>(v)]));
    const double expected = 3 * (std::exp(x) / total - (v == label ? 1 : 0));
    EXPECT_NEAR(static_cast<double>(static_cast<float>(logits.data<BFloat16>()[v])), expected,
                std::abs(expected) * (0x1p-8 + 0x1p-18));
  }
}

TEST(CrossEntropyHalf, MaskedRowsBecomeZero) {
  TestExecutor exec;
  Tensor logits = make_tensor<Float16>(exec, {2, 33}, [](std::int64_t) { return std::nan(""); });
  const Tensor zero = exec.zeros({2}, DType::float32);
  const std::int64_t labels[] = {1, 2};
  softmax_gradient_in_place(exec, logits, 33, zero, zero, labels, 0, zero);
  for (std::int64_t i = 0; i < 66; ++i) EXPECT_EQ(logits.data<Float16>()[i].bits, 0);
  Tensor narrow = exec.zeros({2}, DType::float16);
  EXPECT_THROW(row_max(exec, logits, 33, narrow), Error);
}

}  // namespace
}  // namespace megatron::kernels
