#include "schedule/batch_check.h"

#include <set>
#include <string>

#include "base/check.h"
#include "base/text.h"
#include "schedule/training_program.h"
#include "spec/batch_schedule.h"

namespace megatron::schedule {

void check_batches(const spec::RunSpec& run, std::int64_t consumed_samples) {
  const spec::BatchSchedule schedule(run.batch);
  const std::int64_t now = schedule.at(consumed_samples).num_micro_batches;
  std::set<std::int64_t> known = {0, now};
  const std::string problem_now = program_problem(run.parallel, now);
  if (!problem_now.empty()) throw ConfigError(problem_now);
  for (const spec::BatchStretch& stretch : schedule.trajectory(spec::train_iterations(run.batch))) {
    const std::int64_t count = stretch.batch.num_micro_batches;
    if (stretch.first_sample < consumed_samples || !known.insert(count).second) continue;
    const std::string problem = program_problem(run.parallel, count);
    if (problem.empty()) continue;
    throw ConfigError(str_cat("global batch ", stretch.batch.global_batch, " (from sample ", stretch.first_sample,
                              " on), ", counted(count, "micro-batch"), ": ", problem));
  }
}

}  // namespace megatron::schedule
