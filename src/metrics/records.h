// What one training step and one evaluation report: the numbers behind the console line, the JSON log and the summary.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace megatron::metrics {

/// One step, of all ranks. Times are wall-clock seconds: step and optimizer of the logging rank, the others means over
/// the ranks.
struct StepRecord {
  std::int64_t iteration = 0;         // 1 for the first step
  std::int64_t consumed_samples = 0;  // since the run began, this step included
  std::int64_t global_batch_size = 0;
  std::int64_t trained_tokens = 0;   // tokens whose loss counted (mask > 0)
  std::int64_t computed_tokens = 0;  // all tokens of the batch
  double loss = 0.0;                 // Σ loss·mask / Σ mask; meaningless when trained_tokens is 0
  double grad_norm = 0.0;            // before clipping
  double lr = 0.0;                   // that this update used
  double loss_scale = 1.0;
  std::optional<std::int64_t> num_zeros;
  std::optional<double> params_norm;
  double step_seconds = 0.0;
  double forward_seconds = 0.0;
  double backward_seconds = 0.0;
  double exposed_communication_seconds = 0.0;  // waiting for other ranks or for data from them
  double optimizer_seconds = 0.0;
  double data_seconds = 0.0;
  double model_flops = 0.0;  // of the step, all ranks, by the formula (no recompute)
  bool skipped = false;      // no weight was changed
  bool nan = false;          // loss or a gradient was not finite
  /// An update was taken back and done again, or left out; unset where stages do not update ahead.
  std::optional<bool> redone;
  /// Trained tokens per second of this step; 0 without a time.
  double tokens_per_second() const {
    return step_seconds > 0.0 ? static_cast<double>(trained_tokens) / step_seconds : 0.0;
  }
};

struct EvalRecord {
  std::int64_t iteration = 0;
  double validation_loss = 0.0;        // Σ loss·mask / Σ mask
  std::int64_t validation_tokens = 0;  // tokens whose loss counted
  double seconds = 0.0;
  std::string validation_set = {};  // of several: which
};

/// Peak bytes of one kind of memory, as the memory tracker names it.
using MemoryByKind = std::vector<std::pair<std::string, std::int64_t>>;

/// What a run cost, from its first step on. Peaks and bytes on the wire are those of the rank with most, kind by kind
/// and entry by entry; FLOPs are sums over all ranks and training steps.
struct RunFigures {
  MemoryByKind peak_bytes;
  std::int64_t peak_rss_bytes = 0;  // of the process with most
  /// [group][operation]: sent by a rank in the latest step of the largest batch that changed weights.
  std::map<std::string, std::map<std::string, std::int64_t>> communication_bytes_per_step;
  std::int64_t peak_chunk_stashes = 0;
  std::int64_t recomputed_flops = 0;
  std::int64_t model_flops = 0;  // matrix products and attention, forward and backward, without recomputed ones
};

}  // namespace megatron::metrics
