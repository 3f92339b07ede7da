// What all ranks agree on after a step: one all-reduce of integers carries loss, token counts, NaN and stop flags,
// times.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/exact_sum.h"
#include "mesh/mesh.h"
#include "pipeline/engine.h"

namespace megatron::train {

struct StepSummary {
  ExactSum loss_sum, mask_sum;  // filled by the first TP rank of each last stage, so that every token counts once
  std::int64_t trained_tokens = 0;
  std::int64_t bad_ranks = 0;  // ranks that met a tensor that is not finite
  /// Ranks whose process has got the signal, or has used up its time.
  std::int64_t sigterm = 0, sigint = 0, sigusr1 = 0, out_of_time = 0;
  /// Seconds, summed over ranks (integers of nanoseconds on the wire).
  double forward_seconds = 0, backward_seconds = 0, exposed_seconds = 0, data_seconds = 0;

  double loss() const;  // Σ loss·mask ÷ Σ mask; 0 when nothing was trained
  double token_sum() const { return mask_sum.value(); }
  /// The signal that ends the run: SIGINT before SIGTERM before SIGUSR1, 0 for none.
  int stop_signal() const;
};

/// Sums `local` over all ranks; every rank gets the same bits. Collective, one all-reduce.
StepSummary reduce_summary(mesh::Rank& rank, const StepSummary& local, std::string_view label);

/// The same while other work runs.
class PendingSummary {
 public:
  PendingSummary() = default;
  PendingSummary(mesh::Rank& rank, const StepSummary& local, std::string_view label);
  StepSummary wait();

 private:
  StepSummary local_;
  bool alone_ = true;
  comm::Pending<Tensor> words_;
};

/// What this rank puts into the sum: the engine's output (loss and tokens only on the ranks that count them), whether
/// it met a tensor that is not finite, and the signal its process has got (0: none).
StepSummary local_summary(const mesh::Mesh& mesh, const pipeline::StepOutput& output, int signal);

/// The texts of all ranks (cut at 480 bytes), by global rank. Collective; used when a run ends on an error that one
/// rank saw and all must tell.
std::vector<std::string> gather_texts(mesh::Rank& rank, const std::string& text, std::string_view label);

}  // namespace megatron::train
