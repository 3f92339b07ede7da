#include "kernels/rope.h"

#include "half_testing.h"

namespace megatron::kernels {
namespace {

template <typename T>
Tensor table(Executor& exec, bool sine, std::int64_t half) {
  return make_tensor<T>(exec, {50, half}, [=](std::int64_t i) {
    const double angle =
        static_cast<double>(i / half) * std::pow(100.0, -static_cast<double>(i % half) / static_cast<double>(half));
    return sine ? std::sin(angle) : std::cos(angle);
  });
}

std::vector<std::int64_t> positions(std::int64_t tokens) {
  std::vector<std::int64_t> result;
  for (std::int64_t t = 0; t < tokens; ++t) result.push_back((t * 7) % 50);
  return result;
}

template <typename T>
std::vector<T> rotated(Executor& exec, bool interleaved, bool inverse, std::int64_t half) {
  Tensor x = random_tensor<T>(exec, {30, 3, 50}, 1, 3);
  const auto places = positions(30);
  rope_in_place(exec, x, table<T>(exec, false, half), table<T>(exec, true, half), places.data(), interleaved, inverse);
  return values<T>(x);
}

TEST(Rope, AgreesWithComplexMultiplicationOnEveryIsa) {
  for (const bool interleaved : {false, true})
    for (const bool inverse : {false, true})
      for (const std::int64_t half : {25, 16, 3}) {
        const std::vector<float> got =
            same_everywhere([&](Executor& exec) { return rotated<float>(exec, interleaved, inverse, half); });
        TestExecutor exec;
        EXPECT_LT(largest_error(got, rotated<double>(exec, interleaved, inverse, half)), 3e-7);
        const auto places = positions(30);
        for (std::int64_t i = 0; i < 30 * 3 * 50; ++i) {
          const std::int64_t d = i % 50, row = i - d;
          double expected = static_cast<double>(random_value(1, i));
          if (d < 2 * half) {
            const std::int64_t pair = interleaved ? d / 2 : d % half;
            const bool second = interleaved ? d % 2 == 1 : d >= half;
            const double angle = static_cast<double>(places[static_cast<std::size_t>(i / 150)]) *
                                 std::pow(100.0, -static_cast<double>(pair) / static_cast<double>(half)) *
                                 (inverse ? -1 : 1);
            const auto a = static_cast<double>(random_value(1, row + (interleaved ? 2 * pair : pair)));
            const auto b = static_cast<double>(random_value(1, row + (interleaved ? 2 * pair + 1 : pair + half)));
            expected = second ? b * std::cos(angle) + a * std::sin(angle) : a * std::cos(angle) - b * std::sin(angle);
          }
          ASSERT_NEAR(got[static_cast<std::size_t>(i)], expected, 3e-7) << i;
        }
      }
}

TEST(Rope, InverseUndoesTheRotation) {
  TestExecutor exec(2);
  for (const bool interleaved : {false, true}) {
    Tensor x = random_tensor<double>(exec, {30, 3, 50}, 1);
    const auto places = positions(30);
    for (const bool inverse : {false, true})
      rope_in_place(exec, x, table<double>(exec, false, 20), table<double>(exec, true, 20), places.data(), interleaved,
                    inverse);
    EXPECT_LT(largest_error(values<double>(x), values<double>(random_tensor<double>(exec, {30, 3, 50}, 1))), 1e-14);
  }
}

TEST(Rope, RefusesPositionsOutsideTheTable) {
  TestExecutor exec;
  Tensor x = exec.zeros({1, 1, 8}, DType::float32);
  const Tensor cosines = exec.zeros({4, 4}, DType::float32), wide = exec.zeros({4, 5}, DType::float32);
  const std::int64_t good = 3, bad = 4;
  EXPECT_NO_THROW(rope_in_place(exec, x, cosines, cosines, &good, false, false));
  EXPECT_THROW(rope_in_place(exec, x, cosines, cosines, &bad, false, false), Error);
  EXPECT_THROW(rope_in_place(exec, x, wide, wide, &good, false, false), Error);
  Tensor none = exec.zeros({0, 1, 8}, DType::float32);
  EXPECT_NO_THROW(rope_in_place(exec, none, cosines, cosines, nullptr, false, false));
}

TEST(Rope, CountsTheSameOnMeta) {
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    Tensor x = exec.zeros({2, 3, 8}, DType::float32);
    const Tensor cosines = exec.zeros({4, 3}, DType::float32);
    const std::int64_t places[] = {0, 1};
    rope_in_place(exec, x, cosines, cosines, meta ? nullptr : places, true, false);
    counted[meta ? 1 : 0] = exec.counters().bytes_moved;
  }
  EXPECT_EQ(counted[0], 4 * (2 * 2 * 3 * 6 + 2 * 2 * 3));
  EXPECT_EQ(counted[0], counted[1]);
}

TEST(RopeHalf, IsTheFloatKernelRoundedOnce) {
  constexpr std::int64_t kTokens = 29, kHeads = 3;
  std::vector<std::int64_t> positions;
  for (std::int64_t t = 0; t < kTokens; ++t) positions.push_back(t * 5 % 40);
  for (const std::int64_t rotated : {1, 7, 33})
    for (const bool interleaved : {false, true})
      for (const bool inverse : {false, true})
        expect_rounded_results([&](auto twin, Executor& exec) {
          const auto angle = [&](std::int64_t i) { return static_cast<double>(i / rotated) / (1 + i % rotated); };
          const Tensor cos =
              make_tensor<float>(exec, {40, rotated}, [&](std::int64_t i) { return std::cos(angle(i)); });
          const Tensor sin =
              make_tensor<float>(exec, {40, rotated}, [&](std::int64_t i) { return std::sin(angle(i)); });
          Tensor x = twin.random(exec, {kTokens, kHeads, 2 * rotated + 3}, 1, 2);
          rope_in_place(exec, x, cos, sin, positions.data(), interleaved, inverse);
          std::vector<float> result;
          twin.read(result, x);
          return result;
        });
  TestExecutor exec;
  Tensor x = exec.zeros({kTokens, kHeads, 8}, DType::bfloat16), table = exec.zeros({40, 4}, DType::bfloat16);
  EXPECT_THROW(rope_in_place(exec, x, table, table, positions.data(), false, false), Error);
}

}  // namespace
}  // namespace megatron::kernels
