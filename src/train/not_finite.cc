#include "train/not_finite.h"

#include <vector>

#include "kernels/optimizer_step.h"
#include "train/step_summary.h"

namespace megatron::train {
namespace {

std::string first_bad_weight(RankParts& parts) {
  for (const optim::OwnedPart& part : parts.held_values())
    if (!kernels::all_finite(parts.exec(), part.value)) return part.range.parameter->name;
  return "";
}

/// `one_replica`: false for what all data-parallel ranks share.
std::string place(int rank, const spec::ParallelSpec& parallel, bool one_replica) {
  const int tp = parallel.tensor_parallel, dp = parallel.data_parallel, pp = parallel.pipeline_parallel;
  const int rest = rank / tp;
  const int dp_rank = parallel.use_tp_pp_dp_mapping ? rest / pp : rest % dp;
  const int pp_rank = parallel.use_tp_pp_dp_mapping ? rest % pp : rest / dp;
  if (!one_replica)
    return str_cat(" after the sum over ", dp, " data-parallel ranks (tp ", rank % tp, ", pp ", pp_rank, ")");
  return str_cat(" on rank ", rank, " (tp ", rank % tp, ", pp ", pp_rank, ", dp ", dp_rank, ")");
}

}  // namespace

std::string describe_not_finite(RankParts& parts, std::int64_t iteration, const std::string& seen,
                                bool check_gradients) {
  const std::string weight = first_bad_weight(parts);
  // The first character orders the kinds: the lowest one of the lowest rank is told.
  std::string mine;
  if (!weight.empty()) {
    mine = str_cat("1weight ", weight, seen.empty() ? "" : str_cat(" (first seen in ", seen, ")"));
  } else if (!seen.empty()) {
    mine = "2" + seen;
  } else if (check_gradients) {
    const optim::GradBuffer::BadGradient gradient = parts.grad_buffer().find_not_finite();
    const char kind = static_cast<char>('3' + static_cast<int>(gradient.by));
    if (!gradient.parameter.empty()) mine = str_cat(kind, "gradient of ", gradient.parameter);
  }
  const std::vector<std::string> texts = gather_texts(parts.rank(), mine, "not_finite");
  int best = -1;
  for (int r = 0; r < static_cast<int>(texts.size()); ++r) {
    const std::string& text = texts[static_cast<std::size_t>(r)];
    if (!text.empty() && (best < 0 || text[0] < texts[static_cast<std::size_t>(best)][0])) best = r;
  }
  if (best < 0) return str_cat("iteration ", iteration, ": the loss or the gradient norm is not finite");
  const std::string& text = texts[static_cast<std::size_t>(best)];
  return str_cat("iteration ", iteration, ": NaN or Inf in ", text.substr(1),
                 place(best, parts.run().parallel, text[0] != '5'),
                 "; no weight was changed by this step (--no-check-for-nan-in-loss-and-grad turns the check off)");
}

}  // namespace megatron::train
