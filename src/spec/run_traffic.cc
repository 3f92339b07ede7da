#include "spec/run_traffic.h"

#include <algorithm>
#include <array>

#include "spec/block_shape.h"
#include "spec/run_memory.h"

namespace megatron::spec {
namespace {

constexpr std::int64_t kGradient = 4;  // float32

class StepTraffic {
 public:
  StepTraffic(const RunSpec& run, const FlatPlan& plan, int pipeline_rank, int data_rank, std::int64_t micro_batches)
      : run_(run), p_(run.parallel), plan_(plan), rank_(pipeline_rank), shard_(data_rank), count_(micro_batches) {
    if (optimizer_shards(run) == 1) shard_ = 0;
  }

  TrafficTable count() {
    add_passes();
    add_messages();
    add_data_parallel();
    add_sums_over_tensor_parallel();
    add_tied_table();
    add_optimizer();
    add_all_reduce("world", p_.world_size, 8 * kStepSummaryWords);
    return std::move(table_);
  }

 private:
  void add(const char* group, const char* operation, std::int64_t bytes) {
    if (bytes > 0) table_[group][operation] += bytes;
  }
  void add_all_reduce(const char* group, int size, std::int64_t bytes) {
    add(group, "all_reduce", all_reduce_traffic(bytes, size).all_reduce);
  }
  void add_tp(const Traffic& traffic, std::int64_t times) {
    add("tp", "all_reduce", times * traffic.all_reduce);
    add("tp", "all_gather", times * traffic.all_gather);
    add("tp", "reduce_scatter", times * traffic.reduce_scatter);
  }

  void add_passes() {
    const std::int64_t tokens = run_.batch.micro_batch_size * run_.model.seq_length;
    for (const StageShape& shape : rank_shapes(run_, rank_)) {
      add_tp(shape.forward_traffic(tokens, element_bytes(run_)), count_);
      add_tp(shape.backward_traffic(tokens, element_bytes(run_)), count_);
    }
  }

  void add_messages() {
    const StagePlacement placement = p_.placement();
    for (int chunk = 0; chunk < placement.num_chunks; ++chunk) {
      const int stage = placement.stage_of(rank_, chunk);
      for (const int to : {stage - 1, stage + 1})
        if (to >= 0 && to < placement.num_stages() && placement.rank_of(to) != rank_)
          add("pp", "send", count_ * message_bytes(run_, run_.batch.micro_batch_size));
    }
  }

  void add_data_parallel() {
    const std::int64_t d = p_.data_parallel, value = dtype_size(run_.numerics.params_dtype);
    const std::int64_t message = run_.numerics.grad_reduce_in_bf16 ? 2 : kGradient;
    const ShardingStrategy sharding = effective_sharding(run_);
    const std::int64_t reductions = reduces_every_micro_batch(run_) ? count_ : 1;
    for (const FlatPlan::Bucket& bucket : plan_.buckets) {
      const std::int64_t gathered = (d - 1) * bucket.size() * value / d;
      if (sharding == ShardingStrategy::no_shard)
        add("dp", "all_reduce", reductions * (2 * (d - 1) * bucket.size() * message / d));
      else
        add("dp", "reduce_scatter", reductions * ((d - 1) * bucket.size() * message / d));
      // For each pass, and for each use of a tied table; or all values once, after they have changed.
      if (sharding == ShardingStrategy::optim_grads_params)
        add("dp", "all_gather", 2 * count_ * gathered);
      else if (sharding != ShardingStrategy::no_shard && !plan_.shares_memory(bucket))
        add("dp", "all_gather", gathered);
    }
  }

  void add_sums_over_tensor_parallel() {
    if (p_.tensor_parallel > 1)
      add_all_reduce("tp", p_.tensor_parallel, kGradient * summed_over_tensor_parallel(run_, plan_, shard_));
  }

  void add_tied_table() {
    const StagePlacement placement = p_.placement();
    if (!run_.model.tied() || placement.rank_of(0) == placement.rank_of(placement.num_stages() - 1)) return;
    for (std::size_t i = 0; i < plan_.parameters.size(); ++i)
      if (plan_.parameters[i].tied_use || plan_.parameters[i].shared_embedding)
        add_all_reduce("embedding", 2, kGradient * plan_.owned(i, shard_).size());
  }

  void add_optimizer() {
    const bool sharded = optimizer_shards(run_) > 1;
    const char* group = sharded ? "world" : "model";
    const int model = p_.tensor_parallel * p_.pipeline_parallel, size = sharded ? p_.world_size : model;
    if (p_.pipeline_post_validation && p_.pipeline_parallel > 1)
      add_sums_of_stages();
    else
      add_all_reduce(group, size, 8 * kExactSumWords);
    if (run_.log.log_num_zeros_in_grad) add_all_reduce(group, size, 8);
    const bool value_shards = effective_sharding(run_) == ShardingStrategy::optim_grads_params;
    if (run_.log.log_params_norm)
      add_all_reduce(value_shards ? "world" : "model", value_shards ? p_.world_size : model, 8 * kExactSumWords);
    if (run_.optimizer.kind != OptimizerKind::muon || run_.optimizer.muon.tp_mode == MuonTpMode::blockwise) return;
    for (std::size_t i = 0; i < plan_.parameters.size(); ++i)
      if (plan_.parameters[i].muon && plan_.owned(i, shard_).size() > 0) add_muon(plan_.parameters[i]);
  }

  /// Squares of gradients with a flag, and Σ mask: of a stage, of the stages so far, of all and of the first. A guess
  /// that is taken back gathers values, and passes messages, twice: not counted here.
  void add_sums_of_stages() {
    constexpr std::int64_t kSums = 8 * (kExactSumWords + 1);
    add_all_reduce("tp", p_.tensor_parallel, kSums + 8 * kExactSumWords);
    add_all_reduce("dp", p_.data_parallel, kSums + 8 * kExactSumWords);
    if (rank_ + 1 < p_.pipeline_parallel) add("pp", "send", kSums);
    add_all_reduce("world", p_.world_size, 2 * kSums);
  }

  /// The shards of an update; where the work is shared, three products of each iteration as well.
  void add_muon(const HeldParameter& matrix) {
    const int n = p_.tensor_parallel;
    add_tp(all_gather_traffic(n * matrix.numel() * kGradient, n), 1);
    if (run_.optimizer.muon.tp_mode != MuonTpMode::distributed) return;
    for (const auto& [rows, cols] : muon_parts(run_, matrix)) {
      const std::int64_t small = std::min(rows, cols), steps = run_.optimizer.muon.num_ns_steps;
      add_tp(all_gather_traffic(small * small * kGradient, n), 2 * steps);
      add_tp(all_gather_traffic(rows * cols * kGradient, n), steps);
    }
  }

  const RunSpec& run_;
  const ParallelSpec& p_;
  const FlatPlan& plan_;
  int rank_, shard_;
  std::int64_t count_;
  TrafficTable table_;
};

}  // namespace

TrafficTable step_traffic(const RunSpec& run, const FlatPlan& plan, int pipeline_rank, int data_rank,
                          std::int64_t num_micro_batches) {
  return StepTraffic(run, plan, pipeline_rank, data_rank, num_micro_batches).count();
}

void take_larger(TrafficTable& table, const TrafficTable& other) {
  for (const auto& [group, operations] : other)
    for (const auto& [operation, bytes] : operations) {
      std::int64_t& mine = table[group][operation];
      mine = std::max(mine, bytes);
    }
}

}  // namespace megatron::spec
