#include "nn/language_model_head.h"

#include <cmath>
#include <cstring>

#include "kernels/matmul.h"
#include "support/grad_check.h"

namespace megatron {
namespace {

using testing::WholeTensors;

constexpr std::int64_t kHidden = 4, kVocab = 7, kTokens = 5;

std::vector<double> wave(std::int64_t rows, std::int64_t cols, double start, double step, double (*f)(double)) {
  std::vector<double> values;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      values.push_back(f(start + step * static_cast<double>(r) + static_cast<double>(c)));
  return values;
}
double sine(double x) { return std::sin(x); }
double cosine(double x) { return std::cos(x); }

struct HeadRun {
  std::vector<double> losses;
  WholeTensors gradients;  // "output_layer.weight" and "x"
};

nn::MicroBatch five_tokens() {
  nn::MicroBatch batch = testing::meta_batch(1, kTokens);
  batch.ids.assign(kTokens, 0);
  batch.labels = {0, 6, 3, 2, 5};
  batch.loss_mask = {1.0F, 0.5F, 0.0F, 2.0F, 1.0F};
  batch.tokens.sample_index.assign(kTokens, 0);
  batch.tokens.position = {0, 1, 2, 3, 4};
  return batch;
}

HeadRun run_head(int tp, std::int64_t padded, const std::vector<double>& weight, const std::vector<double>& x_values,
                 const nn::MicroBatch& tokens, std::int64_t vocab = kVocab, DType dtype = DType::float64,
                 bool weights_apart = false) {
  HeadRun result;
  testing::Gatherer gatherer;
  std::mutex mutex;
  testing::run_mesh(testing::make_parallel(tp), [&](mesh::Rank& rank) {
    const nn::LayerSetup setup = {rank.exec.allocator(), rank.mesh.tp, false, dtype};
    nn::LanguageModelHead head(setup, {kHidden, vocab, padded, {tp, false}}, {}, false, nullptr);
    std::vector<nn::Parameter*> parameters;
    head.collect(parameters);
    testing::scatter_into(*parameters[0], weight);
    testing::allocate_gradients(rank.exec, parameters);
    nn::MicroBatch batch = tokens;
    testing::place_batch(batch, rank, false);
    nn::WeightGradQueue queue(rank.exec, nullptr);
    nn::Pass pass{rank, rank.exec, batch, nn::Mode::train, true, queue};
    pass.weights_apart = weights_apart;
    queue.set_deferred(weights_apart);
    nn::Parameter x;
    x.name = "x";
    x.sharding = spec::replicated(2, batch.num_tokens, kHidden, rank.mesh.tp.rank());
    x.value = rank.exec.empty({batch.num_tokens, kHidden}, dtype);
    testing::scatter_into(x, x_values);
    nn::LanguageModelHead::Stash stash;
    const std::vector<double> losses = testing::to_doubles(head.forward(pass, x.value, stash));
    x.main_grad = head.backward(pass, std::move(stash));
    EXPECT_EQ(queue.empty(), !weights_apart);
    queue.drain();
    gatherer.add_gradient(x);
    gatherer.add_gradient(*parameters[0]);
    const std::scoped_lock lock(mutex);
    // Bitwise: a NaN equals itself.
    if (!result.losses.empty()) {
      EXPECT_EQ(std::memcmp(result.losses.data(), losses.data(), losses.size() * sizeof(double)), 0);
    }
    result.losses = losses;
  });
  result.gradients = std::move(gatherer.tensors);
  return result;
}

// torch.nn.functional.cross_entropy in double: x[t,h] = sin(1 + 3t + h), w[v,h] = cos(2v + h), Σ mask·loss.
const std::vector<double> kLosses = {1.2341728907087288, 4.6264310567177356, 1.158412300270661, 2.6626667627286702,
                                     2.6998281023201542};
const std::vector<double> kXGradient = {-0.14107368828384342,
                                        0.14821274282350796,
                                        0.30123306169700942,
                                        0.17730109285371953,
                                        -0.63054472192537148,
                                        -0.7338260810166648,
                                        -0.16243112543359728,
                                        0.55830225778360565,
                                        0,
                                        0,
                                        0,
                                        0,
                                        0.66691267010101762,
                                        -1.9102812244593277,
                                        -2.7311713709649941,
                                        -1.0410351544475418,
                                        1.435823472272598,
                                        0.61043180738290848,
                                        -0.77618804606411484,
                                        -1.4491841895343627};
const std::vector<double> kWeightGradient = {
    -0.54611067868841312, -0.50812935032084172, -0.0029762406268479813, 0.50491321097383268,  -0.59936136132932971,
    -1.0201056683499392,  -0.50296952834793418, 0.47659447645434017,    1.0282354776626894,   1.9274321915226305,
    1.0545566373056288,   -0.78787342591306497, 0.37205086889651234,    0.53106042327611602,  0.20181547360627916,
    -0.31297769177742929, -0.44392788006589301, -0.76544425907412006,   -0.38321471631666049, 0.35134066933712665,
    -0.58608624628115946, -1.2437062784710837,  -0.75786849388005895,   0.42475008889466376,  0.7751998198055936,
    1.0788929414172381,   0.39065686825959367,  -0.65674732796946911};

TEST(LanguageModelHead, AgreesWithPyTorchAtEveryCut) {
  const std::vector<double> x = wave(kTokens, kHidden, 1, 3, sine), w = wave(kVocab, kHidden, 0, 2, cosine);
  for (const auto& [tp, padded] : {std::pair{1, 7}, {1, 12}, {2, 8}, {3, 9}, {4, 16}}) {
    SCOPED_TRACE(str_cat("tp ", tp, ", padded vocabulary ", padded));
    const HeadRun run = run_head(tp, padded, w, x, five_tokens());
    EXPECT_LE(testing::relative_max_error(run.losses, kLosses), 1e-14);
    EXPECT_LE(testing::relative_max_error(run.gradients.at("x"), kXGradient), 1e-14);
    EXPECT_LE(testing::relative_max_error(run.gradients.at("output_layer.weight"), kWeightGradient), 1e-14);
  }
}

// Several tiles of tokens, the last one short.
nn::MicroBatch many_tokens() {
  nn::MicroBatch batch = testing::meta_batch(1, 2 * spec::HeadShape::kTileTokens + 37);
  for (std::int64_t t = 0; t < batch.num_tokens; ++t) {
    batch.ids.push_back(0);
    batch.labels.push_back(t * t % kVocab);
    batch.loss_mask.push_back(static_cast<float>(t % 4) * 0.5F);
    batch.tokens.sample_index.push_back(0);
    batch.tokens.position.push_back(t);
  }
  return batch;
}

// The definition, in plain loops: loss = log Σ exp(x·wᵀ) − the label's logit.
HeadRun by_definition(const std::vector<double>& w, const std::vector<double>& x, const nn::MicroBatch& batch) {
  HeadRun run;
  std::vector<double>&dx = run.gradients["x"], &dw = run.gradients["output_layer.weight"];
  dx.assign(x.size(), 0.0);
  dw.assign(w.size(), 0.0);
  for (std::size_t t = 0; t < batch.labels.size(); ++t) {
    std::vector<double> e;
    double sum = 0;
    for (std::size_t v = 0; v < kVocab; ++v) {
      double logit = 0;
      for (std::size_t h = 0; h < kHidden; ++h) logit += x[t * kHidden + h] * w[v * kHidden + h];
      e.push_back(std::exp(logit));
      sum += e.back();
    }
    const auto label = static_cast<std::size_t>(batch.labels[t]);
    run.losses.push_back(std::log(sum / e[label]));
    for (std::size_t v = 0; v < kVocab; ++v) {
      const double d = static_cast<double>(batch.loss_mask[t]) * (e[v] / sum - (v == label ? 1.0 : 0.0));
      for (std::size_t h = 0; h < kHidden; ++h) {
        dx[t * kHidden + h] += d * w[v * kHidden + h];
        dw[v * kHidden + h] += d * x[t * kHidden + h];
      }
    }
  }
  return run;
}

TEST(LanguageModelHead, WorksInTilesOfTokens) {
  const nn::MicroBatch batch = many_tokens();
  const std::vector<double> x = wave(batch.num_tokens, kHidden, 1, 3, sine), w = wave(kVocab, kHidden, 0, 2, cosine);
  const HeadRun want = by_definition(w, x, batch);
  for (const int tp : {1, 2}) {
    SCOPED_TRACE(str_cat("tp ", tp));
    const HeadRun run = run_head(tp, 8, w, x, batch),
                  apart = run_head(tp, 8, w, x, batch, kVocab, DType::float64, true);
    EXPECT_LE(testing::relative_max_error(run.losses, want.losses), 1e-13);
    for (const char* name : {"x", "output_layer.weight"}) {
      EXPECT_LE(testing::relative_max_error(run.gradients.at(name), want.gradients.at(name)), 1e-13) << name;
      EXPECT_EQ(apart.gradients.at(name), run.gradients.at(name)) << name;
    }
    EXPECT_EQ(apart.losses, run.losses);
  }
}

// The weight gradient has the bits of one product over all tokens: the chunks of K fall on the same tokens.
TEST(LanguageModelHead, TilesLeaveNoTraceInTheWeightGradient) {
  nn::MicroBatch batch = many_tokens();
  const std::vector<double> x = wave(batch.num_tokens, kHidden, 1, 3, sine), w = wave(kVocab, kHidden, 0, 2, cosine);
  const HeadRun whole = run_head(1, 8, w, x, batch, kVocab, DType::float32);
  // Tokens of the other tiles masked out: what is left is one tile's share. Shares added in order give the whole.
  std::vector<double> sum(kVocab * kHidden, 0.0);
  for (std::int64_t begin = 0; begin < batch.num_tokens; begin += kernels::kMatmulChunk) {
    nn::MicroBatch part = batch;
    for (std::int64_t t = 0; t < batch.num_tokens; ++t)
      if (t < begin || t >= begin + kernels::kMatmulChunk) part.loss_mask[static_cast<std::size_t>(t)] = 0;
    const HeadRun share = run_head(1, 8, w, x, part, kVocab, DType::float32);
    const std::vector<double>& dw = share.gradients.at("output_layer.weight");
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] = static_cast<double>(static_cast<float>(sum[i]) + static_cast<float>(dw[i]));
  }
  EXPECT_EQ(whole.gradients.at("output_layer.weight"), sum);
}

TEST(LanguageModelHead, GivesTheLogarithmOfTheVocabularyForZeroWeights) {
  const std::vector<double> x = wave(kTokens, kHidden, 1, 3, sine), zeros(37 * kHidden, 0.0);
  for (const auto& [tp, padded] : {std::pair{1, 37}, {1, 40}, {2, 48}, {4, 128}}) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      const HeadRun run = run_head(tp, padded, zeros, x, five_tokens(), 37, dtype);
      const double want =
          dtype == DType::float32 ? static_cast<double>(static_cast<float>(std::log(37.0))) : std::log(37.0);
      for (const double loss : run.losses) EXPECT_EQ(loss, want) << "tp " << tp << ", padded vocabulary " << padded;
    }
  }
}

// A token that is masked out contributes exactly nothing, whatever its logits; the others are untouched.
TEST(LanguageModelHead, IgnoresLogitsThatAreNotFiniteWhereMasked) {
  std::vector<double> x = wave(kTokens, kHidden, 1, 3, sine);
  const std::vector<double> w = wave(kVocab, kHidden, 0, 2, cosine);
  for (const int tp : {1, 2}) {
    const HeadRun clean = run_head(tp, 8, w, x, five_tokens());
    std::vector<double> broken = x;
    // Products overflow to infinities of both signs: logits are Inf and NaN, x itself is finite.
    for (std::int64_t h = 0; h < kHidden; ++h) broken[static_cast<std::size_t>(2 * kHidden + h)] = 1e308;
    std::vector<double> big = w;
    for (double& value : big) value *= 4;
    const HeadRun reference = run_head(tp, 8, big, x, five_tokens());
    const HeadRun run = run_head(tp, 8, big, broken, five_tokens());
    EXPECT_FALSE(std::isfinite(run.losses[2]));
    for (const int t : {0, 1, 3, 4}) EXPECT_EQ(run.losses[t], reference.losses[t]);
    EXPECT_EQ(run.gradients.at("x"), reference.gradients.at("x"));
    EXPECT_EQ(run.gradients.at("output_layer.weight"), reference.gradients.at("output_layer.weight"));
    EXPECT_NE(clean.losses, reference.losses);
  }
}

TEST(LanguageModelHead, HasTheGradientOfWhatItComputes) {
  const nn::MicroBatch batch = five_tokens();
  for (const int tp : {1, 2}) {
    WholeTensors point;
    point["x"] = testing::test_values(1, kTokens * kHidden);
    point["output_layer.weight"] = testing::test_values(2, kVocab * kHidden);
    testing::grad_check(
        [&](const WholeTensors& there, bool) {
          const HeadRun run = run_head(tp, 8, there.at("output_layer.weight"), there.at("x"), batch);
          testing::Evaluation result;
          for (std::size_t t = 0; t < run.losses.size(); ++t)
            result.value += run.losses[t] * static_cast<double>(batch.loss_mask[t]);
          result.gradients = run.gradients;
          return result;
        },
        point);
  }
}

}  // namespace
}  // namespace megatron
