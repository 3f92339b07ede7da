// Writes text with a trained model: a pass over the prompt, then one token after the other, with cached keys and
// values. Any TP × PP layout (DP 1), without sequence parallelism.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "infer/sampling.h"
#include "mesh/mesh.h"
#include "model/model.h"
#include "spec/run_spec.h"

namespace megatron::infer {

struct GenerateOptions {
  SamplingOptions sampling;
  std::int64_t num_tokens = 64;
  /// Generation ends after this token; unset: never.
  std::optional<std::int64_t> eod;
};

/// Continues `prompt` (at least one id, at most max_position_embeddings) and returns the new ids, the end-of-document
/// token among them if it was met. Ends early when the positions are used up. `on_token` (may be null) is called on
/// every rank for each new id as soon as it is known. Collective over the model group; every rank returns the same.
/// `run` is complete, its sequence_parallel false. Throws ConfigError when the prompt does not fit.
std::vector<std::int64_t> generate(mesh::Rank& rank, model::Model& model, const spec::RunSpec& run,
                                   std::span<const std::int64_t> prompt, const GenerateOptions& options,
                                   const std::function<void(std::int64_t)>& on_token);

/// Throws ConfigError with both numbers unless 1 ≤ prompt_tokens ≤ max_position_embeddings.
void check_prompt_length(std::int64_t prompt_tokens, const spec::RunSpec& run);

}  // namespace megatron::infer
