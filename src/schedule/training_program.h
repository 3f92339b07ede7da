// The program of a step of a run, as its description asks for it.
#pragma once

#include <cstdint>

#include "schedule/instruction.h"
#include "spec/parallel_spec.h"

namespace megatron::schedule {

/// What one training step executes: the run's schedule, communication inserted. Throws ConfigError where the schedule
/// cannot hold `num_micro_batches`, or where its file is no program of this pipeline.
Program training_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches);
/// The same with forward passes alone.
Program evaluation_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches);

}  // namespace megatron::schedule
