// Every number that follows from a configuration, for `megatron validate`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/parse.h"
#include "schedule/run_costs.h"
#include "spec/model_count.h"

namespace megatron::config {

/// What holds of a step, counts and bytes alike, holds of one with the largest batch that the run reaches.
struct Summary {
  std::int64_t global_batch = 0;  // samples of that step; 0: unknown
  std::optional<std::int64_t> data_parallel, expert_data_parallel, num_micro_batches;
  bool has_experts = false;
  bool has_model = false;  // sizes are known: counts below are filled in
  spec::ModelCount parameters;
  std::vector<std::int64_t> stage_parameters;                 // held by each stage, padded vocabulary
  std::vector<std::int64_t> stage_parameters_unpadded_vocab;  // the same, unpadded
  std::optional<double> flops_per_step;
  std::optional<std::int64_t> tokens_per_step, train_iters, train_samples, warmup_samples, decay_samples, eval_batches;
  /// Of a batch that changes: samples before the first step that has it, and the global batch, in order.
  std::vector<std::pair<std::int64_t, std::int64_t>> batch_sizes;
  /// Bytes in memory and on the wire; nothing where the layout is not built.
  std::optional<schedule::RunCosts> costs;
};

Summary summarize(const ParsedRun& run);
/// One JSON document: derived numbers, `errors`, `refused`, `not_built`, `notices`.
std::string summary_json(const ParsedRun& run, const Summary& summary);
/// The same as lines for people.
std::string summary_text(const ParsedRun& run, const Summary& summary);

}  // namespace megatron::config
