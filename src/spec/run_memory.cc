#include "spec/run_memory.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "base/check.h"
#include "base/units.h"

namespace megatron::spec {
namespace {

constexpr std::int64_t kWide = 4;  // float32: of gradients, main weights, optimizer state

std::int64_t moments_per_element(const OptimizerSpec& optimizer, const HeldParameter& parameter) {
  if (parameter.muon) return 1;
  const OptimizerKind kind = optimizer.kind == OptimizerKind::muon ? optimizer.muon.scalar_optimizer : optimizer.kind;
  if (kind == OptimizerKind::adam) return 2;
  return kind == OptimizerKind::sgd && optimizer.sgd_momentum == 0 && !optimizer.sgd_nesterov ? 0 : 1;
}

/// Elements of the gradients that are being written or are on their way, where they are reduced after every
/// micro-batch: of two buckets that follow each other, the first of the next micro-batch behind the last.
std::int64_t staged_gradients(const RunSpec& run, const FlatPlan& plan) {
  const std::size_t count = plan.buckets.size();
  std::int64_t most = 0;
  for (std::size_t b = 0; b < count; ++b) {
    const bool wraps = b + 1 == count;
    const std::int64_t next = wraps && run.batch.num_micro_batches == 1 ? 0 : plan.buckets[(b + 1) % count].size();
    most = std::max(most, plan.buckets[b].size() + (run.parallel.overlap ? next : 0));
  }
  return most;
}

/// Elements of what a stage uses together: embedding, each layer, final norm and head, each with all of its buckets.
std::vector<std::int64_t> unit_sizes(const FlatPlan& plan, int stage) {
  std::vector<std::int64_t> sizes;
  int unit = -1;
  bool in_head = false;
  std::unordered_set<std::size_t> seen;
  // A rank's stages follow each other.
  const auto begin = std::partition_point(plan.parameters.begin(), plan.parameters.end(),
                                          [stage](const HeldParameter& p) { return p.stage < stage; });
  for (auto i = static_cast<std::size_t>(begin - plan.parameters.begin()); i < plan.parameters.size(); ++i) {
    const HeldParameter& parameter = plan.parameters[i];
    if (parameter.stage != stage) break;
    if (parameter.unit != unit && !in_head) sizes.push_back(0);
    unit = parameter.unit;
    in_head = in_head || parameter.name.rfind("decoder.final_layernorm", 0) == 0;
    if (seen.insert(plan.bucket_of[i]).second) sizes.back() += plan.buckets[plan.bucket_of[i]].size();
  }
  return sizes;
}

/// Elements of values that are gathered at one time: of a unit and the next one, or of a recomputed group and the unit
/// before it.
std::int64_t gathered_values(const RunSpec& run, const FlatPlan& plan, int pipeline_rank) {
  const StagePlacement placement = run.parallel.placement();
  std::int64_t most = 0;
  for (int chunk = 0; chunk < placement.num_chunks; ++chunk) {
    const int stage = placement.stage_of(pipeline_rank, chunk);
    const std::vector<std::int64_t> sizes = unit_sizes(plan, stage);
    const bool ahead = run.parallel.overlap;
    for (std::size_t i = 0; i < sizes.size(); ++i)
      most = std::max(most, sizes[i] + (ahead && i > 0 ? sizes[i - 1] : 0));
    const std::size_t first_layer = stage == 0 ? 1 : 0;
    for (const RecomputeGroup& group :
         run.recompute.groups(run.parallel.layers_per_stage[static_cast<std::size_t>(stage)])) {
      const auto begin = sizes.begin() + static_cast<std::ptrdiff_t>(first_layer) + group.first;
      most = std::max(most, std::accumulate(begin, begin + group.count, std::int64_t{0}) +
                                (ahead && begin != sizes.begin() ? *(begin - 1) : 0));
    }
  }
  return most;
}

std::int64_t value_elements(const RunSpec& run, const FlatPlan& plan) {
  std::int64_t elements = 0;
  if (effective_sharding(run) != ShardingStrategy::no_shard) {
    for (const FlatPlan::Bucket& bucket : plan.buckets) elements += plan.shares_memory(bucket) ? 0 : bucket.size();
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
    if (gathers && run.optimizer.muon.tp_mode == MuonTpMode::distributed)
      peak.communication = std::max(peak.communication, n * shard + kWide * ceil_div(rows, n) * cols);
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

RankMemory lasting_memory(const RunSpec& run, const FlatPlan& plan, int pipeline_rank, int data_rank) {
  const std::int64_t value = element_bytes(run).value;
  const ShardingStrategy sharding = effective_sharding(run);
  const int shard = optimizer_shards(run) > 1 ? data_rank : 0;
  std::int64_t owned_gradients = 0, owned_values = 0;
  for (const FlatPlan::Bucket& bucket : plan.buckets) {
    const std::int64_t size = bucket.shard_sizes[static_cast<std::size_t>(shard)];
    owned_gradients += size;
    owned_values += plan.shares_memory(bucket) ? 0 : size;
  }
  RankMemory m;
  m.parameters = value * (sharding == ShardingStrategy::optim_grads_params
                              ? owned_values + gathered_values(run, plan, pipeline_rank)
                              : value_elements(run, plan));
  if (!reduces_every_micro_batch(run)) {
    m.gradients = kWide * plan.num_elements();
  } else {
    // Rounded messages take the place of what is on its way.
    std::int64_t staged = staged_gradients(run, plan);
    if (run.numerics.grad_reduce_in_bf16) {
      staged = 0;
      for (const FlatPlan::Bucket& bucket : plan.buckets) staged = std::max(staged, bucket.size());
    }
    m.gradients = kWide * (owned_gradients + staged);
  }
  for (std::size_t i = 0; i < plan.parameters.size(); ++i) {
    const HeldParameter& parameter = plan.parameters[i];
    if (parameter.shares_memory) continue;
    const std::int64_t owned = plan.owned(i, shard).size();
    if (value < kWide) m.main_parameters += kWide * owned;
    const std::int64_t moments = moments_per_element(run.optimizer, parameter);
    m.optimizer += kWide * moments * owned;
    // To take an update back, weights and moments as they were.
    if (run.parallel.pipeline_post_validation && pipeline_rank + 1 < run.parallel.pipeline_parallel)
      m.optimizer += kWide * (1 + moments) * owned;
  }
  return m;
}

StagePasses::Peak update_peak(const RunSpec& run, const FlatPlan& plan, int data_rank) {
  const int shard = optimizer_shards(run) > 1 ? data_rank : 0;
  StagePasses::Peak peak;
  if (run.parallel.world_size > 1) peak.communication = 8 * kStepSummaryWords;
  if (run.parallel.tensor_parallel > 1)
    peak.communication = std::max(peak.communication, kWide * summed_over_tensor_parallel(run, plan, shard));
  // Rounded messages of all buckets are under way until the step ends.
  if (run.numerics.grad_reduce_in_bf16 && run.parallel.data_parallel > 1 && !reduces_every_micro_batch(run))
    peak.communication = std::max(peak.communication, 2 * plan.num_elements());
  if (run.optimizer.kind != OptimizerKind::muon) return peak;
  for (std::size_t i = 0; i < plan.parameters.size(); ++i) {
    if (!plan.parameters[i].muon || plan.owned(i, shard).size() == 0) continue;
    const StagePasses::Peak of_matrix = muon_peak(run, plan.parameters[i]);
    peak.activations = std::max(peak.activations, of_matrix.activations);
    peak.communication = std::max(peak.communication, of_matrix.communication);
  }
  return peak;
}

std::int64_t rounded_messages_of_passes(const RunSpec& run, const FlatPlan& plan) {
  return run.numerics.grad_reduce_in_bf16 && reduces_every_micro_batch(run) ? 2 * staged_gradients(run, plan) : 0;
}

std::int64_t summed_over_tensor_parallel(const RunSpec& run, const FlatPlan& plan, int shard) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < plan.parameters.size(); ++i) {
    const HeldParameter& parameter = plan.parameters[i];
    if (parameter.sum == HeldParameter::Sum::none) continue;
    HeldRange range = plan.owned(i, shard);
    std::int64_t copies = 1;
    if (parameter.sum == HeldParameter::Sum::shared_rows) {
      const Piece& shared = parameter.sharding.pieces.back();
      const std::int64_t cols = parameter.sharding.local_cols;
      range.begin = std::max(range.begin, shared.local_row * cols);
      range.end = std::min(range.end, (shared.local_row + shared.global.rows) * cols);
      copies = run.model.num_query_groups;
    }
    total += copies * std::max<std::int64_t>(range.size(), 0);
  }
  return total;
}

}  // namespace megatron::spec
