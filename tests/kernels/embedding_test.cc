#include "kernels/embedding.h"

#include "half_testing.h"

namespace megatron::kernels {
namespace {

const std::vector<std::int64_t> kIds = {3, 0, 9, 3, 12, 7, 3, 4, 4, 99, -1};

TEST(Embedding, LooksUpItsShardAndZeroesTheRest) {
  const std::vector<float> got = same_everywhere([](Executor& exec) {
    const Tensor table = random_tensor<float>(exec, {6, 70}, 1, 2);  // rows 3 … 8
    Tensor y = random_tensor<float>(exec, {11, 70}, 2, 3);
    embedding_forward(exec, table, kIds.data(), 3, y);
    return values<float>(y);
  });
  for (std::int64_t i = 0; i < 11 * 70; ++i) {
    const std::int64_t row = kIds[static_cast<std::size_t>(i / 70)] - 3;
    ASSERT_EQ(got[static_cast<std::size_t>(i)], row >= 0 && row < 6 ? random_value(1, row * 70 + i % 70) : 0) << i;
  }
}

TEST(Embedding, AddsGradientsInTokenOrder) {
  const std::vector<float> got = same_everywhere([](Executor& exec) {
    const Tensor dy = random_tensor<float>(exec, {11, 70}, 1, 2);
    Tensor grad = random_tensor<float>(exec, {6, 70}, 2, 3);
    embedding_backward(exec, dy, kIds.data(), 3, grad);
    return values<float>(grad);
  });
  for (std::int64_t i = 0; i < 6 * 70; ++i) {
    float expected = random_value(2, i);
    for (std::int64_t t = 0; t < 11; ++t)
      if (kIds[static_cast<std::size_t>(t)] - 3 == i / 70) expected += random_value(1, t * 70 + i % 70);
    ASSERT_EQ(got[static_cast<std::size_t>(i)], expected) << i;
  }
}

TEST(Embedding, DoubleEmptyAndMeta) {
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    Tensor table = exec.zeros({6, 4}, DType::float64), y = exec.zeros({11, 4}, DType::float64);
    Tensor none = exec.zeros({0, 4}, DType::float64), wrong = exec.zeros({11, 5}, DType::float64);
    const std::int64_t* ids = meta ? nullptr : kIds.data();
    embedding_forward(exec, table, ids, 3, y);
    embedding_backward(exec, y, ids, 3, table);
    embedding_forward(exec, table, nullptr, 3, none);
    embedding_backward(exec, none, nullptr, 3, table);
    EXPECT_THROW(embedding_forward(exec, table, ids, 3, wrong), Error);
    counted[meta ? 1 : 0] = exec.counters().bytes_moved;
  }
  EXPECT_EQ(counted[0], counted[1]);
  EXPECT_GT(counted[0], 0);
}

TEST(EmbeddingHalf, LooksUpExactlyAndAddsInFloat) {
  constexpr std::int64_t kTokens = 150, kRows = 11, kFirst = 4;
  std::vector<std::int64_t> ids;
  for (std::int64_t t = 0; t < kTokens; ++t) ids.push_back(t * 7 % 20);
  for (const std::int64_t hidden : {1, 7, 33, 127})
    expect_rounded_results([&](auto twin, Executor& exec) {
      std::vector<float> result;
      const Tensor table = twin.random(exec, {kRows, hidden}, 1, 2), dy = twin.random(exec, {kTokens, hidden}, 2, 1);
      Tensor y = twin.empty(exec, {kTokens, hidden}), wide = exec.empty({kTokens, hidden}, DType::float32);
      Tensor grad = random_tensor<float>(exec, {kRows, hidden}, 3, 3);
      embedding_forward(exec, table, ids.data(), kFirst, y);
      twin.read(result, y);
      embedding_forward(exec, table, ids.data(), kFirst, wide);
      append(result, values<float>(wide));
      embedding_backward(exec, dy, ids.data(), kFirst, grad);
      append(result, values<float>(grad));
      return result;
    });
}

TEST(EmbeddingHalf, RefusesOtherMixesAndCountsAlikeOnMeta) {
  const std::vector<std::int64_t> ids(3, 0);
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    Tensor b = exec.zeros({3, 8}, DType::bfloat16), h = exec.zeros({3, 8}, DType::float16);
    Tensor f = exec.zeros({3, 8}, DType::float32);
    const std::int64_t* place = meta ? nullptr : ids.data();
    embedding_forward(exec, b, place, 0, b);
    embedding_forward(exec, b, place, 0, f);
    embedding_backward(exec, b, place, 0, f);
    EXPECT_THROW(embedding_forward(exec, f, place, 0, b), Error);
    EXPECT_THROW(embedding_forward(exec, h, place, 0, b), Error);
    EXPECT_THROW(embedding_backward(exec, b, place, 0, b), Error);
    counted[meta ? 1 : 0] = exec.counters().bytes_moved;
  }
  EXPECT_EQ(counted[0], counted[1]);
}

}  // namespace
}  // namespace megatron::kernels
