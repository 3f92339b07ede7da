#include "schedule/training_program.h"

#include "schedule/generators.h"
#include "schedule/passes.h"

namespace megatron::schedule {

Program training_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches) {
  const bool all_forward_first = parallel.schedule == spec::PipelineSchedule::gpipe;
  return insert_communication(all_forward_first ? gpipe({parallel.pipeline_parallel}, num_micro_batches)
                                                : one_f_one_b(parallel.pipeline_parallel, num_micro_batches));
}

Program evaluation_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches) {
  return insert_communication(forward_only({parallel.pipeline_parallel}, num_micro_batches));
}

}  // namespace megatron::schedule
