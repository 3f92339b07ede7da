#include "schedule/training_program.h"

#include "base/check.h"
#include "base/text.h"
#include "schedule/auto_schedule.h"
#include "schedule/generators.h"
#include "schedule/passes.h"
#include "schedule/program_text.h"

namespace megatron::schedule {
namespace {

Program interleaved_program(const spec::ParallelSpec& parallel, std::int64_t m) {
  const std::int64_t group = parallel.interleaved_group_size();
  const std::string problem = interleaving_problem(parallel.pipeline_parallel, m, group);
  if (!problem.empty()) throw ConfigError(problem);
  return interleaved(parallel.pipeline_parallel, parallel.virtual_chunks, m, group);
}

Program auto_program(const spec::ParallelSpec& parallel, std::int64_t m, double kept) {
  if (!parallel.pipeline_times && parallel.virtual_chunks == 1)
    return split_backward(one_f_one_b(parallel.pipeline_parallel, m));
  AutoRequest request{parallel.placement(), m, parallel.pipeline_times.value_or(spec::PipelineTimes()),
                      parallel.pipeline_memory_limit.value_or(1.0), kept};
  request.stage_times = parallel.pipeline_stage_times;
  request.whole_backward = !parallel.pipeline_times.has_value();
  return auto_schedule(request);
}

/// What it throws does not name the file.
Program file_program(const spec::ParallelSpec& parallel, std::int64_t m) {
  Program program = read_named_program(parallel.schedule_file);
  if (std::ssize(program.lists) != parallel.pipeline_parallel)
    throw ConfigError(
        str_cat(counted(std::ssize(program.lists), "rank"), ", the pipeline has ", parallel.pipeline_parallel));
  if (!(program.placement == parallel.placement()))
    throw ConfigError(str_cat(counted(program.placement.num_chunks, "virtual stage"), " per rank in ",
                              program.placement.kind == spec::PlacementKind::v ? "V" : "linear",
                              " placement, the run has ", parallel.virtual_chunks));
  if (num_micro_batches(program) != m)
    throw ConfigError(str_cat(counted(num_micro_batches(program), "micro-batch"), ", a step has ", m));
  validate(insert_communication(program));
  check_memory(program, parallel.pipeline_memory_limit.value_or(0.0), 1.0);
  return program;
}

}  // namespace

Program training_passes(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches,
                        double kept_after_input_grad) {
  const int p = parallel.pipeline_parallel;
  switch (parallel.schedule) {
    case spec::PipelineSchedule::one_f_one_b:
      return one_f_one_b(p, num_micro_batches);
    case spec::PipelineSchedule::gpipe:
      return gpipe(parallel.placement(), num_micro_batches);
    case spec::PipelineSchedule::interleaved:
      return interleaved_program(parallel, num_micro_batches);
    case spec::PipelineSchedule::zb_h1:
      return zb_h1(p, num_micro_batches);
    case spec::PipelineSchedule::zb_h2:
      return zb_h2(p, num_micro_batches);
    case spec::PipelineSchedule::zb_v:
      return zb_v(p, num_micro_batches);
    case spec::PipelineSchedule::zb_auto:
      return auto_program(parallel, num_micro_batches, kept_after_input_grad);
    case spec::PipelineSchedule::from_file:
      try {
        return file_program(parallel, num_micro_batches);
      } catch (const Error& error) {
        throw ConfigError(str_cat("--pipeline-schedule-file ", parallel.schedule_file, ": ", error.what()));
      }
  }
  throw Error("an unknown pipeline schedule");
}

bool measures_passes(const spec::ParallelSpec& parallel) {
  return parallel.schedule == spec::PipelineSchedule::zb_auto && !parallel.pipeline_times &&
         parallel.pipeline_parallel > 1;
}

std::string program_problem(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches) {
  const int p = parallel.pipeline_parallel;
  if (parallel.schedule == spec::PipelineSchedule::interleaved)
    return interleaving_problem(p, num_micro_batches, parallel.interleaved_group_size());
  if (parallel.schedule == spec::PipelineSchedule::zb_auto) {
    const double least = smallest_memory_limit(parallel.placement(), num_micro_batches);
    if (parallel.pipeline_memory_limit.value_or(1.0) >= least - kStashSlack / parallel.placement().num_stages())
      return {};
    return str_cat("the smallest feasible limit of ", p, " ranks with ", counted(parallel.virtual_chunks, "stage"),
                   " each is ", limit_text(least));
  }
  if (parallel.schedule != spec::PipelineSchedule::from_file) return {};
  try {
    file_program(parallel, num_micro_batches);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

Program training_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches,
                         double kept_after_input_grad) {
  return insert_communication(training_passes(parallel, num_micro_batches, kept_after_input_grad));
}

Program evaluation_program(const spec::ParallelSpec& parallel, std::int64_t num_micro_batches) {
  return insert_communication(forward_only(parallel.placement(), num_micro_batches));
}

}  // namespace megatron::schedule
