// How a run is cut over ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spec/stage_placement.h"

namespace megatron::spec {

/// Orders of the passes of a step; schedule/generators.h says what each is.
enum class PipelineSchedule : std::uint8_t { one_f_one_b, gpipe, interleaved, zb_h1, zb_h2, zb_v, zb_auto, from_file };

/// Times of one micro-batch on a pipeline rank (all its stages together), in any unit, and of a message between ranks.
struct PipelineTimes {
  double forward = 1.0, input_grad = 1.0, weight_grad = 1.0, message = 0.0;
};

/// What data-parallel ranks share out instead of each holding all of it (arXiv 1910.02054): nothing, optimizer state,
/// and with it gradients, and with these parameters.
enum class ShardingStrategy : std::uint8_t { no_shard, optim, optim_grads, optim_grads_params };

struct ParallelSpec {
  int world_size = 0;  // 0 until known: launcher's, --world-size, or tp·pp
  int tensor_parallel = 1;
  int pipeline_parallel = 1;
  int context_parallel = 1;
  int expert_parallel = 1;
  int data_parallel = 0;  // derived
  bool sequence_parallel = false;
  bool use_tp_pp_dp_mapping = false;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  std::string schedule_file;                             // with PipelineSchedule::from_file: a program as text
  std::string schedule_out;                              // file that gets the run's program; empty: none
  int virtual_chunks = 1;                                // stages of each pipeline rank; derived
  PlacementKind placement_kind = PlacementKind::linear;  // derived from the schedule
  std::int64_t micro_batch_group_size = 0;               // 0: as interleaved_group_size() says
  std::optional<PipelineTimes> pipeline_times;           // of zb_auto
  /// F, I and W of each virtual stage instead, as they were measured; empty: each has its share of pipeline_times.
  std::vector<PipelineTimes> pipeline_stage_times;
  /// Multiples of 1F1B's activations; unset: 1 with zb_auto, none for a file.
  std::optional<double> pipeline_memory_limit;
  /// A stage updates its weights before the others have finished, and again where its guess of the norm was wrong.
  bool pipeline_post_validation = false;
  std::optional<std::string> pipeline_layout;  // what each virtual stage holds, as text: layer_split.h
  std::optional<std::int64_t> decoder_first_pipeline_num_layers;
  std::optional<std::int64_t> decoder_last_pipeline_num_layers;
  bool account_for_embedding_in_pipeline_split = false;
  bool account_for_loss_in_pipeline_split = false;
  bool use_distributed_optimizer = false, use_megatron_fsdp = false;
  ShardingStrategy data_parallel_sharding_strategy = ShardingStrategy::optim_grads_params;  // with use_megatron_fsdp
  /// Gradients are added over data-parallel ranks after every micro-batch at each strategy, as optim_grads does.
  bool reduce_every_microbatch = false;
  bool overlap = true;  // of communication with computation over data parallelism; no influence on results
  std::optional<std::int64_t> ddp_bucket_size;  // elements; unset: max(40e6, 1e6·dp)
  double distributed_timeout_minutes = 10;
  std::optional<double> distributed_timeout_seconds;  // ours, for tests; wins
  int threads_per_rank = 0;                           // 0: usable cores ÷ ranks on this machine, at least 1

  /// Micro-batches that pass a virtual stage of the interleaved schedule in a row.
  std::int64_t interleaved_group_size() const {
    return micro_batch_group_size > 0 ? micro_batch_group_size : pipeline_parallel;
  }

  /// Decoder layers of each virtual stage, in order; derived (Megatron's rules, no layer is ever dropped).
  std::vector<std::int64_t> layers_per_stage;

  ShardingStrategy sharding() const {
    if (use_megatron_fsdp) return data_parallel_sharding_strategy;
    return use_distributed_optimizer ? ShardingStrategy::optim : ShardingStrategy::no_shard;
  }
  StagePlacement placement() const { return {pipeline_parallel, virtual_chunks, placement_kind}; }
};

}  // namespace megatron::spec
