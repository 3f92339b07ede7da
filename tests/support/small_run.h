// Small training runs inside a test: a model in a few fields, data made on the spot, ranks as threads, whole weights at
// the end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "spec/run_spec.h"
#include "train/trainer.h"

namespace megatron::testing {

struct Layout {
  int tp = 1, pp = 1, dp = 1;
  bool sp = false;
  std::int64_t micro_batch = 1;
  int world() const { return tp * pp * dp; }
};

/// "tp2+sp pp2 dp1 mbs1"
std::string layout_text(const Layout& layout);

/// A 2-layer GPT-2 kind (`llama` false) or Llama kind: hidden 32, 4 heads, vocabulary 61, sequences of 16, global batch
/// 8, Adam at a constant rate, no dropout. Change fields, then call complete().
spec::RunSpec small_run(bool llama);

/// Fills in every derived field for `layout` (as config does for options).
spec::RunSpec complete(spec::RunSpec run, const Layout& layout);

/// Sequences that a model can learn: the next id is a function of the last two; ids from (seed, sample). `mask` gives
/// the weight of the token at (sample, place); null: 1.
std::shared_ptr<data::Dataset> make_sequences(std::int64_t size, std::int64_t seq_length, std::int64_t vocab,
                                              std::function<float(std::int64_t, std::int64_t)> mask = nullptr);

using Weights = std::map<std::string, std::vector<float>>;  // whole logical tensors, row-major

struct SmallResult {
  train::TrainOutcome outcome;
  std::vector<train::StepReport> steps;
  std::vector<train::EvaluationReport> evaluations;
  std::vector<train::StepProfile> profiles;
  std::vector<std::string> lines;
  Weights weights;
};

struct SmallOptions {
  std::shared_ptr<data::Dataset> train, valid, test;
  train::TrainHooks hooks;
  const std::atomic<int>* stop_signal = nullptr;
  std::uint64_t perturb_seed = 0;
  /// Instead of the seed's initial weights; missing names keep them.
  Weights initial;
  /// Puts something between the run and its world, such as a world that loses an operation; null: nothing.
  std::function<std::unique_ptr<comm::World>(std::unique_ptr<comm::World>)> wrap_world;
};

/// Trains `run` (complete) in a local world and returns what happened. Rethrows what a rank threw.
SmallResult train_small(const spec::RunSpec& run, const SmallOptions& options);

/// Whole logical tensors of the model that `parts` hold together: each rank adds its owned pieces. Not collective: call
/// it on every rank with the same `into`, under a lock of the caller.
void add_owned_weights(train::RankParts& parts, Weights& into);
/// Writes whole tensors into this rank's shards (also tied copies and replicas). Names not in `from` are left alone.
void set_weights(train::RankParts& parts, const Weights& from);

/// √mean((a − b)²) ÷ √mean(b²), or the numerator alone where b is all zero.
double relative_rms(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace megatron::testing
