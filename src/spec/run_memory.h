// What the ranks of a run hold in memory, by kind, from the description alone. What passes hold depends on their order:
// schedule/run_costs.h adds it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/exact_sum.h"
#include "spec/block_shape.h"
#include "spec/flat_plan.h"
#include "spec/pass_memory.h"
#include "spec/run_spec.h"

namespace megatron::spec {

/// Largest bytes of each kind on one rank while it trains. Not counted: scratch of kernels, rotary tables.
struct RankMemory {
  std::int64_t parameters = 0;
  std::int64_t main_parameters = 0;  // float32 weights beside 16-bit ones
  std::int64_t gradients = 0;        // the flat buffer, with its padding; one place per use of a tied table
  std::int64_t optimizer = 0;        // moments; copies of weights and moments for updates ahead of other stages
  std::int64_t activations = 0;      // stashes of micro-batches in flight and what passes hold besides
  std::int64_t packed = 0;           // packed copies of weights: none are kept
  std::int64_t communication = 0;    // results of gathers, messages between stages, packed sums
  std::int64_t total() const {
    return parameters + main_parameters + gradients + optimizer + activations + packed + communication;
  }
};

/// 64-bit integers that all ranks add up: of an exact sum, and of the summary of a step (loss, tokens, flags, times).
inline constexpr std::int64_t kExactSumWords = ExactSum::kWords;
inline constexpr std::int64_t kStepSummaryWords = 2 * kExactSumWords + 10;

/// Parameters, main parameters, gradients and optimizer state of the rank at (`pipeline_rank`, `data_rank`), with what
/// is gathered or written for a while where data-parallel ranks share them. `plan`: the pipeline rank's, with
/// optimizer_shards(run).
RankMemory lasting_memory(const RunSpec& run, const FlatPlan& plan, int pipeline_rank, int data_rank);
/// Bytes of gradients' rounded messages that are on their way while passes go on.
std::int64_t rounded_messages_of_passes(const RunSpec& run, const FlatPlan& plan);
/// Elements of gradients of which each tensor-parallel rank has a part: they are added up in one operation, in which
/// rows of shared keys and values lie once per group of heads.
std::int64_t summed_over_tensor_parallel(const RunSpec& run, const FlatPlan& plan, int shard);
/// What the end of a step holds besides: activations and communication of gradients' reductions and of the update.
StagePasses::Peak update_peak(const RunSpec& run, const FlatPlan& plan, int data_rank);

/// Of values and of the residual stream.
ElementBytes element_bytes(const RunSpec& run);
/// Shapes of the virtual stages of pipeline rank `rank`, in chunk order. The layout must divide the model.
std::vector<StageShape> rank_shapes(const RunSpec& run, int pipeline_rank);
/// A hidden state between stages, or its gradient, of one micro-batch.
std::int64_t message_bytes(const RunSpec& run, std::int64_t micro_batch_size);
/// Rows and columns of what Muon orthogonalises of a matrix: its shard by itself (blockwise), else the whole; queries,
/// keys and values apart if so asked.
std::vector<std::pair<std::int64_t, std::int64_t>> muon_parts(const RunSpec& run, const HeldParameter& matrix);

}  // namespace megatron::spec
