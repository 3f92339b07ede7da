#include "spec/run_memory.h"

#include <algorithm>

#include "base/check.h"

namespace megatron::spec {
namespace {

constexpr std::int64_t kWide = 4;  // float32: of gradients, main weights, optimizer state

std::int64_t moments_per_element(const OptimizerSpec& optimizer, const HeldParameter& parameter) {
  if (parameter.muon) return 1;
  const OptimizerKind kind = optimizer.kind == OptimizerKind::muon ? optimizer.muon.scalar_optimizer : optimizer.kind;
  if (kind == OptimizerKind::adam) return 2;
  return kind == OptimizerKind::sgd && optimizer.sgd_momentum == 0 && !optimizer.sgd_nesterov ? 0 : 1;
}

/// Of the two neighbours in buffer order that are largest together, or of the only bucket.
std::int64_t largest_pair(const FlatPlan& plan, bool with_values) {
  std::int64_t most = 0, before = 0;
  for (const FlatPlan::Bucket& bucket : plan.buckets) {
    if (with_values && bucket.shares_memory) continue;
    most = std::max(most, before + bucket.size());
    before = bucket.size();
  }
  return most;
}

std::int64_t value_elements(const RunSpec& run, const FlatPlan& plan) {
  std::int64_t elements = 0;
  const bool flat = run.parallel.sharding() != ShardingStrategy::no_shard && run.parallel.data_parallel > 1;
  if (flat) {
    for (const FlatPlan::Bucket& bucket : plan.buckets) elements += bucket.shares_memory ? 0 : bucket.size();
  } else {
    for (const HeldParameter& parameter : plan.parameters) elements += parameter.shares_memory ? 0 : parameter.numel();
  }
  return elements;
}

/// What passes through the update of one matrix.
StagePasses::Peak muon_peak(const RunSpec& run, const HeldParameter& matrix) {
  const std::int64_t n = run.parallel.tensor_parallel, shard = kWide * matrix.numel();
  const bool gathers = n > 1 && run.optimizer.muon.tp_mode != MuonTpMode::blockwise;
  StagePasses::Peak peak{shard, gathers ? n * shard : 0};
  for (const auto& [rows, cols] : muon_parts(run, matrix)) {
    const std::int64_t small = std::min(rows, cols), part = kWide * rows * cols;
    peak.activations = std::max(peak.activations, (gathers ? 0 : shard) + 2 * part + 2 * kWide * small * small);
  }
  return peak;
}

}  // namespace

ElementBytes element_bytes(const RunSpec& run) {
  return {dtype_size(run.numerics.params_dtype), dtype_size(run.numerics.residual_dtype())};
}

std::vector<StageShape> rank_shapes(const RunSpec& run, int pipeline_rank) {
  const auto& p = run.parallel;
  const StagePlacement placement = p.placement();
  MEGATRON_CHECK_EQ(static_cast<int>(p.layers_per_stage.size()), placement.num_stages(), "layers of each stage");
  std::vector<StageShape> shapes;
  bool has_table = false;
  for (int chunk = 0; chunk < placement.num_chunks; ++chunk) {
    const int stage = placement.stage_of(pipeline_rank, chunk);
    const bool first = stage == 0, last = stage + 1 == placement.num_stages();
    StageShape shape = stage_shape(run.model, {p.tensor_parallel, p.sequence_parallel},
                                   p.layers_per_stage[static_cast<std::size_t>(stage)], first, last, run.recompute);
    has_table = has_table || first;
    shape.head_shares_memory = last && has_table && run.model.tied();
    shapes.push_back(shape);
  }
  return shapes;
}

std::int64_t message_bytes(const RunSpec& run, std::int64_t micro_batch_size) {
  const TensorLayout layout{run.parallel.tensor_parallel, run.parallel.sequence_parallel};
  return element_bytes(run).stream * layout.token_rows(micro_batch_size * run.model.seq_length) * run.model.hidden_size;
}

std::vector<std::pair<std::int64_t, std::int64_t>> muon_parts(const RunSpec& run, const HeldParameter& matrix) {
  const bool whole = run.optimizer.muon.tp_mode != MuonTpMode::blockwise;
  const std::int64_t rows = whole ? matrix.sharding.rows : matrix.sharding.local_rows;
  const std::int64_t cols = whole ? matrix.sharding.cols : matrix.sharding.local_cols;
  if (!run.optimizer.muon.split_qkv || matrix.name.find("linear_qkv") == std::string::npos) return {{rows, cols}};
  const std::int64_t heads = run.model.num_attention_heads / run.model.num_query_groups;
  const std::int64_t head = rows / (heads + 2);
  return {{heads * head, cols}, {head, cols}, {head, cols}};
}

RankMemory lasting_memory(const RunSpec& run, const FlatPlan& plan, int data_rank) {
  const std::int64_t value = element_bytes(run).value, d = run.parallel.data_parallel;
  const ShardingStrategy sharding = d > 1 ? run.parallel.sharding() : ShardingStrategy::no_shard;
  const int shard = optimizer_shards(run) > 1 ? data_rank : 0;
  RankMemory m;
  m.parameters = value * value_elements(run, plan);
  if (sharding == ShardingStrategy::optim_grads_params)
    m.parameters = m.parameters / d + value * largest_pair(plan, true);
  m.gradients = kWide * plan.num_elements();
  if (sharding >= ShardingStrategy::optim_grads) m.gradients = m.gradients / d + kWide * largest_pair(plan, false);
  for (std::size_t i = 0; i < plan.parameters.size(); ++i) {
    const HeldParameter& parameter = plan.parameters[i];
    if (parameter.shares_memory) continue;
    const std::int64_t owned = plan.owned(i, shard).size();
    if (value < kWide) m.main_parameters += kWide * owned;
    m.optimizer += kWide * moments_per_element(run.optimizer, parameter) * owned;
  }
  return m;
}

StagePasses::Peak update_peak(const RunSpec& run, const FlatPlan& plan, int data_rank) {
  const int shard = optimizer_shards(run) > 1 ? data_rank : 0;
  StagePasses::Peak peak;
  // Rounded messages of all buckets are under way until the step ends.
  if (run.numerics.grad_reduce_in_bf16 && run.parallel.data_parallel > 1) peak.communication = 2 * plan.num_elements();
  if (run.optimizer.kind != OptimizerKind::muon) return peak;
  for (std::size_t i = 0; i < plan.parameters.size(); ++i) {
    if (!plan.parameters[i].muon || plan.owned(i, shard).size() == 0) continue;
    const StagePasses::Peak of_matrix = muon_peak(run, plan.parameters[i]);
    peak.activations = std::max(peak.activations, of_matrix.activations);
    peak.communication = std::max(peak.communication, of_matrix.communication);
  }
  return peak;
}

}  // namespace megatron::spec
