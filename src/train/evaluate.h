// The loss on held-out samples: the same Σ loss·mask ÷ Σ mask as in training, by the same engine.
#pragma once

#include <atomic>
#include <cstdint>

#include "data/dataset.h"
#include "data/samplers.h"
#include "train/assemble.h"
#include "train/step_summary.h"

namespace megatron::train {

struct EvaluationPlan {
  std::int64_t first_sample = 0;      // place in the data set; wraps at its end
  std::int64_t num_samples = 0;       // all of them count, also when they do not fill the last batch
  std::int64_t global_batch = 1;      // samples per iteration
  std::int64_t micro_batch_size = 1;  // per data-parallel rank
};

struct EvaluationResult {
  double loss = 0;  // NaN where no token counts
  double token_sum = 0;
  std::int64_t trained_tokens = 0;
  std::int64_t samples = 0;
  /// Signal that ended the evaluation early, the same on every rank; 0: it is complete.
  int stop_signal = 0;
};

/// The plan of the run's evaluations: eval_iters batches of the evaluation batch sizes (the training ones by default).
EvaluationPlan evaluation_plan(const spec::RunSpec& run, std::int64_t first_sample);

/// Collective over the world; no weight, no gradient is touched.
EvaluationResult evaluate(RankParts& parts, const data::Dataset& dataset, const EvaluationPlan& plan,
                          const std::atomic<int>* stop_signal);

}  // namespace megatron::train
