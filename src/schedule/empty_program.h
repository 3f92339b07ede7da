// Where every generator starts.
#pragma once

#include <cstdint>

#include "schedule/instruction.h"

namespace megatron::schedule {

/// A program with an empty list for each rank; checks the sizes.
Program empty_program(const spec::StagePlacement& placement, std::int64_t num_micro_batches);

}  // namespace megatron::schedule
