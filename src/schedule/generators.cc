#include "schedule/generators.h"

#include <algorithm>

#include "base/check.h"
#include "schedule/passes.h"

namespace megatron::schedule {
namespace {

Program empty_program(const spec::StagePlacement& placement, std::int64_t num_micro_batches) {
  MEGATRON_CHECK_GE(placement.num_ranks, 1, "ranks of a pipeline");
  MEGATRON_CHECK_GE(placement.num_chunks, 1, "virtual stages of a rank");
  MEGATRON_CHECK_GE(num_micro_batches, std::int64_t{1}, "micro-batches of a step");
  return {placement, std::vector<std::vector<Instruction>>(static_cast<std::size_t>(placement.num_ranks))};
}

}  // namespace

Program one_f_one_b(int num_ranks, std::int64_t num_micro_batches) {
  Program program = empty_program({num_ranks}, num_micro_batches);
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<Instruction>& list = program.lists[static_cast<std::size_t>(rank)];
    const auto append = [&](Op op, std::int64_t i) { list.push_back({op, i, rank}); };
    const std::int64_t warmup = std::min<std::int64_t>(num_micro_batches, num_ranks - rank - 1);
    for (std::int64_t i = 0; i < warmup; ++i) append(Op::forward, i);
    for (std::int64_t i = warmup; i < num_micro_batches; ++i) {
      append(Op::forward, i);
      append(Op::backward, i - warmup);
    }
    for (std::int64_t i = num_micro_batches - warmup; i < num_micro_batches; ++i) append(Op::backward, i);
  }
  return program;
}

Program gpipe(const spec::StagePlacement& placement, std::int64_t num_micro_batches) {
  Program program = empty_program(placement, num_micro_batches);
  for (int rank = 0; rank < placement.num_ranks; ++rank) {
    std::vector<Instruction>& list = program.lists[static_cast<std::size_t>(rank)];
    for (int chunk = 0; chunk < placement.num_chunks; ++chunk)
      for (std::int64_t i = 0; i < num_micro_batches; ++i)
        list.push_back({Op::forward, i, placement.stage_of(rank, chunk)});
    for (int chunk = placement.num_chunks; chunk-- > 0;)
      for (std::int64_t i = 0; i < num_micro_batches; ++i)
        list.push_back({Op::backward, i, placement.stage_of(rank, chunk)});
  }
  return program;
}

Program forward_only(const spec::StagePlacement& placement, std::int64_t num_micro_batches) {
  Program program = empty_program(placement, num_micro_batches);
  for (int rank = 0; rank < placement.num_ranks; ++rank)
    for (std::int64_t first = 0; first < num_micro_batches; first += placement.num_ranks)
      for (int chunk = 0; chunk < placement.num_chunks; ++chunk)
        for (std::int64_t i = first; i < std::min(first + placement.num_ranks, num_micro_batches); ++i)
          program.lists[static_cast<std::size_t>(rank)].push_back({Op::forward, i, placement.stage_of(rank, chunk)});
  return program;
}

Program training_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches) {
  const bool all_forward_first = parallel.schedule == spec::PipelineSchedule::gpipe;
  return insert_communication(all_forward_first ? gpipe({parallel.pipeline_parallel}, num_micro_batches)
                                                : one_f_one_b(parallel.pipeline_parallel, num_micro_batches));
}

Program evaluation_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches) {
  return insert_communication(forward_only({parallel.pipeline_parallel}, num_micro_batches));
}

}  // namespace megatron::schedule
