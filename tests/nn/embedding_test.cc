#include "nn/embedding.h"

#include "support/grad_check.h"

namespace megatron {
namespace {

using testing::WholeTensors;

constexpr std::int64_t kHidden = 4, kVocab = 11, kPositions = 6;

struct EmbeddingRun {
  std::vector<double> y;  // [T, hidden]
  WholeTensors gradients;
};

/// y of all tokens, and the gradients of Σ c·y.
EmbeddingRun run_embedding(int tp, bool sequence_parallel, double dropout, nn::Mode mode, const WholeTensors& tables) {
  EmbeddingRun result;
  testing::Gatherer gatherer;
  std::mutex mutex;
  testing::run_mesh(testing::make_parallel(tp, 1, 1, sequence_parallel), [&](mesh::Rank& rank) {
    const nn::LayerSetup setup = {rank.exec.allocator(), rank.mesh.tp, sequence_parallel, DType::float64};
    nn::Embedding embedding(setup, {kHidden, kVocab, 12, kPositions, {tp, sequence_parallel}}, {{}, {}, dropout});
    std::vector<nn::Parameter*> parameters;
    embedding.collect(parameters);
    for (nn::Parameter* p : parameters) testing::scatter_into(*p, tables.at(p->name));
    testing::allocate_gradients(rank.exec, parameters);
    nn::MicroBatch batch = testing::make_batch(3, 9, 2, kPositions, kVocab);
    testing::place_batch(batch, rank, sequence_parallel);
    nn::WeightGradQueue queue(rank.exec, nullptr);
    nn::Pass pass{rank, rank.exec, batch, mode, true, queue};
    const Tensor y = embedding.forward(pass);
    Tensor dy = rank.exec.empty(y.shape(), DType::float64);
    for (std::int64_t i = 0; i < dy.numel(); ++i)
      dy.data<double>()[i] = testing::test_value(77, batch.shard_begin * kHidden + i);
    embedding.backward(pass, std::move(dy));
    for (const nn::Parameter* p : parameters) gatherer.add_gradient(*p);
    const std::scoped_lock lock(mutex);
    result.y.resize(static_cast<std::size_t>(batch.num_tokens * kHidden));
    const std::vector<double> rows = testing::to_doubles(y);
    std::copy(rows.begin(), rows.end(), result.y.begin() + batch.shard_begin * kHidden);
  });
  result.gradients = std::move(gatherer.tensors);
  return result;
}

WholeTensors some_tables() {
  return {{"embedding.word_embeddings.weight", testing::test_values(1, kVocab * kHidden)},
          {"embedding.position_embeddings.weight", testing::test_values(2, kPositions * kHidden)}};
}

TEST(Embedding, AddsTokenAndPosition) {
  const WholeTensors tables = some_tables();
  const nn::MicroBatch batch = testing::make_batch(3, 9, 2, kPositions, kVocab);
  for (const auto& [tp, sp] : {std::pair{1, false}, {2, false}, {2, true}, {3, true}}) {
    const EmbeddingRun run = run_embedding(tp, sp, 0.0, nn::Mode::train, tables);
    for (std::int64_t t = 0; t < batch.num_tokens; ++t)
      for (std::int64_t h = 0; h < kHidden; ++h) {
        const auto id = batch.ids[static_cast<std::size_t>(t)];
        const double want =
            tables.at("embedding.word_embeddings.weight")[static_cast<std::size_t>(id * kHidden + h)] +
            tables.at("embedding.position_embeddings.weight")[static_cast<std::size_t>(t % kPositions * kHidden + h)];
        EXPECT_EQ(run.y[static_cast<std::size_t>(t * kHidden + h)], want) << "token " << t << ", tp " << tp;
      }
  }
}

TEST(Embedding, DropsTheSameElementsUnderEveryCut) {
  const EmbeddingRun whole = run_embedding(1, false, 0.4, nn::Mode::train, some_tables());
  const EmbeddingRun evaluated = run_embedding(1, false, 0.4, nn::Mode::evaluate, some_tables());
  int dropped = 0;
  for (std::size_t i = 0; i < whole.y.size(); ++i) {
    dropped += whole.y[i] == 0.0 ? 1 : 0;
    if (whole.y[i] != 0.0) {
      EXPECT_NEAR(whole.y[i], evaluated.y[i] / 0.6, 1e-12);
    }
  }
  EXPECT_GT(dropped, 5);  // 48 elements at 0.4
  EXPECT_LT(dropped, 35);
  for (const auto& [tp, sp] : {std::pair{2, false}, {2, true}, {4, true}})
    EXPECT_EQ(run_embedding(tp, sp, 0.4, nn::Mode::train, some_tables()).y, whole.y) << "tp " << tp;
}

TEST(Embedding, HasTheGradientOfWhatItComputes) {
  const nn::MicroBatch batch = testing::make_batch(3, 9, 2, kPositions, kVocab);
  for (const auto& [tp, sp] : {std::pair{1, false}, {2, false}, {2, true}})
    testing::grad_check(
        [&, tp = tp, sp = sp](const WholeTensors& there, bool) {
          const EmbeddingRun run = run_embedding(tp, sp, 0.25, nn::Mode::train, there);
          testing::Evaluation result;
          for (std::size_t i = 0; i < run.y.size(); ++i)
            result.value += run.y[i] * testing::test_value(77, static_cast<std::int64_t>(i));
          result.gradients = run.gradients;
          return result;
        },
        some_tables());
}

}  // namespace
}  // namespace megatron
