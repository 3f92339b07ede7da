#include "spec/run_memory.h"

#include <algorithm>

#include "base/check.h"

namespace megatron::spec {
namespace {

constexpr std::int64_t kBytes = 4;  // float32

StageShape shape_of(const RunSpec& run, std::size_t stage) {
  const auto& p = run.parallel;
  MEGATRON_CHECK_EQ(static_cast<int>(p.layers_per_stage.size()), p.pipeline_parallel, "layers of each stage");
  return stage_shape(run.model, {p.tensor_parallel, p.sequence_parallel}, p.layers_per_stage[stage], stage == 0,
                     stage + 1 == p.layers_per_stage.size());
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

}  // namespace

std::int64_t live_micro_batches(const RunSpec& run, int stage) {
  const std::int64_t all = run.batch.num_micro_batches;
  const std::int64_t p = run.parallel.pipeline_parallel;
  switch (run.parallel.schedule) {
    case PipelineSchedule::gpipe:
      return all;
    case PipelineSchedule::zb_h1:
      return std::min(all, p);
    case PipelineSchedule::zb_h2:
      return std::min(all, 2 * p - 1);
    case PipelineSchedule::zb_auto:
    case PipelineSchedule::from_file: {
      // A file without a limit may hold all.
      const double otherwise = run.parallel.schedule == PipelineSchedule::zb_auto ? 1.0 : static_cast<double>(all);
      const double limit = run.parallel.pipeline_memory_limit.value_or(otherwise);
      return static_cast<std::int64_t>(std::min(static_cast<double>(all), limit * static_cast<double>(p)));
    }
    default:
      return std::min(all, p - stage);
  }
}

std::vector<StageMemory> memory_per_stage(const RunSpec& run) {
  const std::int64_t tokens = run.batch.micro_batch_size * run.model.seq_length;
  std::vector<StageMemory> stages;
  for (std::size_t s = 0; s < run.parallel.layers_per_stage.size(); ++s) {
    const StageShape shape = shape_of(run, s);
    StageMemory m;
    m.parameters = kBytes * shape.parameters();
    m.gradients = m.parameters + (shape.head_shares_memory ? kBytes * shape.head.parameters() : 0);
    m.optimizer = kBytes * moments(shape, run.optimizer);
    m.stash = kBytes * shape.stash(tokens) * live_micro_batches(run, static_cast<int>(s));
    if (run.parallel.tensor_parallel > 1) m.communication += kBytes * tokens * run.model.hidden_size;
    if (run.parallel.pipeline_parallel > 1) m.communication += 2 * kBytes * message(run);
    stages.push_back(m);
  }
  return stages;
}

}  // namespace megatron::spec
