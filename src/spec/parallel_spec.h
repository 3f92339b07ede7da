// How a run is cut over ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace megatron::spec {

enum class PipelineSchedule : std::uint8_t { one_f_one_b, gpipe };

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
  std::optional<std::int64_t> decoder_first_pipeline_num_layers;
  std::optional<std::int64_t> decoder_last_pipeline_num_layers;
  bool account_for_embedding_in_pipeline_split = false;
  bool account_for_loss_in_pipeline_split = false;
  std::optional<std::int64_t> ddp_bucket_size;  // elements; unset: max(40e6, 1e6·dp)
  double distributed_timeout_minutes = 10;
  std::optional<double> distributed_timeout_seconds;  // ours, for tests; wins
  int threads_per_rank = 0;                           // 0: usable cores ÷ ranks on this machine, at least 1

  /// Decoder layers of each stage, in order; derived (Megatron's rules, no layer is ever dropped).
  std::vector<std::int64_t> layers_per_stage;
};

}  // namespace megatron::spec
