#include "spec/run_memory.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"

namespace megatron::spec {
namespace {

constexpr std::int64_t kBytes = 4;  // float32: of gradients, main weights, optimizer state

/// Shapes of the virtual stages of pipeline rank `rank`, in chunk order.
std::vector<StageShape> shapes_of(const RunSpec& run, int rank) {
  const auto& p = run.parallel;
  const StagePlacement placement = p.placement();
  MEGATRON_CHECK_EQ(static_cast<int>(p.layers_per_stage.size()), placement.num_stages(), "layers of each stage");
  std::vector<StageShape> shapes;
  bool has_table = false;
  for (int chunk = 0; chunk < placement.num_chunks; ++chunk) {
    const int stage = placement.stage_of(rank, chunk);
    const bool first = stage == 0, last = stage + 1 == placement.num_stages();
    StageShape shape = stage_shape(run.model, {p.tensor_parallel, p.sequence_parallel},
                                   p.layers_per_stage[static_cast<std::size_t>(stage)], first, last, run.recompute);
    has_table = has_table || first;
    shape.head_shares_memory = last && has_table && run.model.tied();
    shapes.push_back(shape);
  }
  return shapes;
}

/// Elements of one message between stages.
std::int64_t message(const RunSpec& run) {
  const TensorLayout layout{run.parallel.tensor_parallel, run.parallel.sequence_parallel};
  return layout.token_rows(run.batch.micro_batch_size * run.model.seq_length) * run.model.hidden_size;
}

std::int64_t moments_per_parameter(OptimizerKind kind, const OptimizerSpec& optimizer) {
  if (kind == OptimizerKind::adam) return 2;
  return kind == OptimizerKind::sgd && optimizer.sgd_momentum == 0 ? 0 : 1;
}

std::int64_t weight(const LinearShape& linear) { return linear.local_in * linear.local_out; }

/// Elements of optimizer state. Muon keeps one moment of the matrices of layers and leaves the rest to another.
std::int64_t moments(const StageShape& shape, const OptimizerSpec& optimizer) {
  if (optimizer.kind != OptimizerKind::muon)
    return shape.parameters() * moments_per_parameter(optimizer.kind, optimizer);
  const BlockShape& block = shape.block;
  const std::int64_t matrices =
      shape.layers * (weight(block.attention.linear_qkv()) + weight(block.attention.linear_proj()) +
                      weight(block.mlp.linear_fc1()) + weight(block.mlp.linear_fc2()));
  return matrices + (shape.parameters() - matrices) * moments_per_parameter(optimizer.muon.scalar_optimizer, optimizer);
}

/// The schedule has W passes, or may have them.
bool weights_apart(const ParallelSpec& parallel) {
  switch (parallel.schedule) {
    case PipelineSchedule::one_f_one_b:
    case PipelineSchedule::gpipe:
    case PipelineSchedule::interleaved:
      return false;
    default:
      return true;
  }
}

}  // namespace

std::int64_t live_chunk_stashes(const RunSpec& run, int pipeline_rank) {
  const std::int64_t m = run.batch.num_micro_batches, p = run.parallel.pipeline_parallel, r = pipeline_rank;
  const std::int64_t v = run.parallel.virtual_chunks;
  switch (run.parallel.schedule) {
    case PipelineSchedule::gpipe:
      return m * v;
    case PipelineSchedule::interleaved: {
      const std::int64_t group = run.parallel.micro_batch_group_size > 0 ? run.parallel.micro_batch_group_size : p;
      return std::min(m * v, 2 * (p - r - 1) + (v - 1) * group + 1);
    }
    case PipelineSchedule::zb_h1:
      return std::min(m, p);
    case PipelineSchedule::zb_h2:
      return std::min(m, 2 * p - 1);
    case PipelineSchedule::zb_v:
      return std::min(2 * m, 2 * p);
    case PipelineSchedule::zb_auto:
    case PipelineSchedule::from_file: {
      // A file without a limit may hold all.
      const double otherwise = run.parallel.schedule == PipelineSchedule::zb_auto ? 1.0 : static_cast<double>(m);
      const double limit = run.parallel.pipeline_memory_limit.value_or(otherwise);
      return static_cast<std::int64_t>(std::min(static_cast<double>(m * v), limit * static_cast<double>(p * v)));
    }
    case PipelineSchedule::one_f_one_b:
      break;
  }
  return std::min(m, p - r);
}

std::vector<RankMemory> memory_per_rank(const RunSpec& run) {
  const std::int64_t tokens = run.batch.micro_batch_size * run.model.seq_length;
  const std::int64_t value = dtype_size(run.numerics.params_dtype), stream = dtype_size(run.numerics.residual_dtype());
  const std::int64_t shards = run.parallel.sharding() == ShardingStrategy::no_shard ? 1 : run.parallel.data_parallel;
  std::vector<RankMemory> ranks;
  for (int rank = 0; rank < run.parallel.pipeline_parallel; ++rank) {
    RankMemory m;
    std::int64_t repeated = 0;  // what recompute brings back, for one stage at a time
    for (const StageShape& shape : shapes_of(run, rank)) {
      m.parameters += value * shape.parameters();
      if (value < kBytes) m.main_parameters += kBytes * ceil_div(shape.parameters(), shards);
      m.gradients += kBytes * (shape.parameters() + (shape.head_shares_memory ? shape.head.parameters() : 0));
      m.optimizer += kBytes * ceil_div(moments(shape, run.optimizer), shards);
      const std::int64_t kept =
          value * shape.stash(tokens, weights_apart(run.parallel)) + (stream - value) * shape.stashed_stream(tokens);
      m.stash += kept * live_chunk_stashes(run, rank) / run.parallel.virtual_chunks;
      repeated = std::max(repeated, value * shape.recompute_peak(tokens));
    }
    m.stash += repeated;
    if (run.parallel.tensor_parallel > 1) m.communication += value * tokens * run.model.hidden_size;
    if (run.parallel.pipeline_parallel > 1) m.communication += 2 * stream * message(run);
    ranks.push_back(m);
  }
  return ranks;
}

}  // namespace megatron::spec
