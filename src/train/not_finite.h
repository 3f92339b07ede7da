// When a number is not finite: which tensor, on which rank, is to blame.
#pragma once

#include <cstdint>
#include <string>

#include "train/assemble.h"

namespace megatron::train {

/// One line that names the iteration, the tensor, its rank and, where known, the micro-batch: a weight that is not
/// finite before anything else, then what the engine met first, then a gradient. `seen` and `gradient` are this rank's
/// view, empty for nothing. Collective over the world; the same text on every rank.
std::string describe_not_finite(RankParts& parts, std::int64_t iteration, const std::string& seen,
                                const std::string& gradient);

}  // namespace megatron::train
