// The program of a step of a run, as its description asks for it.
#pragma once

#include <cstdint>
#include <string>

#include "schedule/instruction.h"
#include "spec/parallel_spec.h"

namespace megatron::schedule {

/// Passes of one training step under the run's schedule. Throws ConfigError where the schedule cannot hold
/// `num_micro_batches`, or where its file is no program of this pipeline or exceeds the memory limit. zb-auto without
/// times: with one stage per rank 1F1B, in V placement an order of forward and whole backward passes (each B as I and W
/// at once) within the memory limit.
/// `kept_after_input_grad`: what a stash weighs between I and W where zb-auto searches (see run_costs.h); in a file it
/// counts whole until W.
Program training_passes(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches,
                        double kept_after_input_grad = 1.0);

/// True for zb-auto without given times: the run measures passes up to step kLastMeasuredStep, then gets another
/// program.
bool measures_passes(const spec::ParallelSpec& parallel);
inline constexpr std::int64_t kLastMeasuredStep = 5;

/// Why training_passes would refuse `num_micro_batches`; empty if it does not. Makes no program but that of a file.
std::string program_problem(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches);

/// training_passes with communication inserted: what the ranks execute.
Program training_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches,
                         double kept_after_input_grad = 1.0);
/// The same with forward passes alone.
Program evaluation_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches);

}  // namespace megatron::schedule
