#include "schedule/generators.h"

#include <algorithm>

#include "base/check.h"
#include "schedule/passes.h"

namespace megatron::schedule {
namespace {

void check_sizes(int num_stages, std::int64_t num_micro_batches) {
  MEGATRON_CHECK_GE(num_stages, 1, "stages of a pipeline");
  MEGATRON_CHECK_GE(num_micro_batches, std::int64_t{1}, "micro-batches of a step");
}

void append(std::vector<Instruction>& list, Op op, std::int64_t micro_batch) { list.push_back({op, micro_batch, 0}); }

}  // namespace

Program one_f_one_b(int num_stages, std::int64_t num_micro_batches) {
  check_sizes(num_stages, num_micro_batches);
  Program program(static_cast<std::size_t>(num_stages));
  for (int stage = 0; stage < num_stages; ++stage) {
    std::vector<Instruction>& list = program[static_cast<std::size_t>(stage)];
    const std::int64_t warmup = std::min<std::int64_t>(num_micro_batches, num_stages - stage - 1);
    for (std::int64_t i = 0; i < warmup; ++i) append(list, Op::forward, i);
    for (std::int64_t i = warmup; i < num_micro_batches; ++i) {
      append(list, Op::forward, i);
      append(list, Op::backward, i - warmup);
    }
    for (std::int64_t i = num_micro_batches - warmup; i < num_micro_batches; ++i) append(list, Op::backward, i);
  }
  return program;
}

Program gpipe(int num_stages, std::int64_t num_micro_batches) {
  Program program = forward_only(num_stages, num_micro_batches);
  for (std::vector<Instruction>& list : program)
    for (std::int64_t i = 0; i < num_micro_batches; ++i) append(list, Op::backward, i);
  return program;
}

Program forward_only(int num_stages, std::int64_t num_micro_batches) {
  check_sizes(num_stages, num_micro_batches);
  std::vector<Instruction> list;
  for (std::int64_t i = 0; i < num_micro_batches; ++i) append(list, Op::forward, i);
  return Program(static_cast<std::size_t>(num_stages), list);
}

Program training_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches) {
  const bool all_forward_first = parallel.schedule == spec::PipelineSchedule::gpipe;
  return insert_communication(all_forward_first ? gpipe(parallel.pipeline_parallel, num_micro_batches)
                                                : one_f_one_b(parallel.pipeline_parallel, num_micro_batches));
}

Program evaluation_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches) {
  return insert_communication(forward_only(parallel.pipeline_parallel, num_micro_batches));
}

}  // namespace megatron::schedule
