// Updates of a pipeline stage ahead of the others (arXiv 2401.10241 §4): a stage guesses from the partial norm of the
// stages before it, and takes a wrong guess back from saved copies once the norm of all stages is known. Results are
// bitwise those of Optimizer::step().
#pragma once

#include <cstdint>
#include <vector>

#include "base/exact_sum.h"
#include "comm/pending.h"
#include "optim/optimizer.h"

namespace megatron::optim {

/// What a rank knows when its own gradients are final.
struct StageOutcome {
  ExactSum mask_sum;    // Σ mask of this rank's micro-batches
  bool healthy = true;  // no tensor that was not finite; else nothing may be updated
};

/// Squares and flags are sums of integers, so a sum over stages has the same bits in any order. The partial norm of the
/// stages 0 … r never exceeds that of all: where stage 0's guess is right, every stage's is; and the last stage, which
/// knows all others, is never wrong and keeps no copies.
class PostValidation {
 public:
  /// Both outlive it. Claims the memory of the copies.
  PostValidation(mesh::Rank& rank, Optimizer& optimizer);

  /// Takes this stage's gradients (as Optimizer::step wants them), waits for the partial sums of the stage before,
  /// hands them on with its own, and updates unless they say that nothing may be updated. `input.token_sum` is
  /// ignored: it is Σ mask over the data-parallel ranks. Launches the sum over all stages. Collective over the world;
  /// gradients must stay as they are until finish().
  void guess(const UpdateInput& input, const StageOutcome& outcome);
  /// Waits for the sum over all stages; true where finish() will take the guess back. Collective over the world.
  bool guess_was_wrong();
  /// After guess_was_wrong(): a wrong guess is undone and, unless the step is skipped, made again. The result is
  /// Optimizer::step()'s; with a rank that was not healthy nothing stays updated and `skipped` is set. Collective over
  /// the world.
  UpdateResult finish();

  /// Of the latest step: values were written by guess().
  bool updated() const { return updated_; }
  /// The guess of this stage was taken back.
  bool redone() const { return redone_; }
  /// The guess of some stage was taken back: the first one's, whose guess is the least. The same on all ranks.
  bool redone_by_any() const { return redone_by_any_; }
  double token_sum() const { return input_.token_sum; }

 private:
  /// Sums over ranks and stages: the squares of gradients, and the ranks that were not healthy.
  struct Sums {
    ExactSum squares;
    std::int64_t unhealthy = 0;
  };
  static void write(const Sums& sums, std::int64_t* words);
  static Sums read(const std::int64_t* words);
  Sums sum_over_stage(const Sums& own, const ExactSum& mask_sum);
  Sums add_earlier_stages(Sums sums);
  UpdateDecision decide(const Sums& sums) const;
  bool differs(const UpdateDecision& guess) const;
  void save();
  void restore();
  bool is_last_stage() const { return rank_.mesh.pp.rank() + 1 == rank_.mesh.pp.size(); }

  mesh::Rank& rank_;
  Optimizer& optimizer_;
  UpdateInput input_;
  UpdateDecision guess_, decision_;
  bool unhealthy_ = false;
  comm::Pending<Tensor> total_, sent_;
  std::vector<Tensor> saved_;  // what an update writes, as it was before
  bool guessed_ = false, updated_ = false, redone_ = false, redone_by_any_ = false;
};

}  // namespace megatron::optim
