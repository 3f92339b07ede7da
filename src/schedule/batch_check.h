// Whether the run's pipeline schedule can hold every batch that the run will have.
#pragma once

#include "spec/run_spec.h"

namespace megatron::schedule {

/// Asks for each number of micro-batches from the step after `consumed_samples` on whether the schedule has a program.
/// Throws ConfigError, naming the batch and the sample where it begins, for the first one that it refuses.
void check_batches(const spec::RunSpec& run, std::int64_t consumed_samples = 0);

}  // namespace megatron::schedule
