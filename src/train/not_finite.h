// When a number is not finite: which tensor, on which rank, is to blame.
#pragma once

#include <cstdint>
#include <string>

#include "train/assemble.h"

namespace megatron::train {

/// One line that names the iteration, the tensor, its rank and, where known, the micro-batch: a weight that is not
/// finite before anything else, then what the engine met first, then a gradient, of the first rank whose own was not
/// finite where the sum over data-parallel ranks has left it. `seen` is this rank's view, empty for nothing;
/// `check_gradients`: those of this step are complete. Collective over the world; the same text on every rank.
std::string describe_not_finite(RankParts& parts, std::int64_t iteration, const std::string& seen,
                                bool check_gradients);

}  // namespace megatron::train
