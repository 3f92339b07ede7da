#include "train/evaluations.h"

#include <algorithm>
#include <string_view>

#include "train/evaluate.h"
#include "train/machine.h"

namespace megatron::train {

int Evaluations::validate(RunPosition& position, bool at_end) {
  const std::int64_t first = position.consumed_valid_samples;
  int signal = evaluate_split(process_.data.valid.get(), "validation", at_end, "", position);
  std::int64_t consumed = position.consumed_valid_samples;
  for (const data::NamedDataset& set : process_.data.valid_sets) {
    if (signal != 0) break;
    position.consumed_valid_samples = first;  // every set begins at the same place
    signal = evaluate_split(set.dataset.get(), "validation", at_end, set.name, position);
    consumed = std::max(consumed, position.consumed_valid_samples);
  }
  position.consumed_valid_samples = consumed;
  return signal;
}

int Evaluations::at_end(RunPosition& position) {
  const int signal = validate(position, true);
  return signal != 0 ? signal : evaluate_split(process_.data.test.get(), "test", true, "", position);
}

int Evaluations::evaluate_split(const data::Dataset* dataset, const char* split, bool at_end, const std::string& set,
                                RunPosition& position) {
  const spec::RunSpec& run = process_.run;
  const bool validation = std::string_view(split) == "validation";
  if (dataset == nullptr || run.batch.eval_iters == 0) return 0;
  const double start = monotonic_seconds();
  context_.note_progress(split, position.iteration);
  const bool whole = validation && run.data.full_validation;
  EvaluationPlan plan = evaluation_plan(run, validation && !whole ? position.consumed_valid_samples : 0);
  if (whole) plan.num_samples = dataset->size();
  const EvaluationResult result = evaluate(parts_, *dataset, plan, process_.stop_signal);
  if (result.stop_signal != 0) return result.stop_signal;
  if (validation && !whole) position.consumed_valid_samples += plan.num_samples;
  EvaluationReport report;
  report.iteration = position.iteration;
  report.split = split;
  report.set = set;
  report.suffix = str_cat(at_end ? str_cat(" on ", split, " set") : std::string(), set.empty() ? "" : " of ", set);
  report.loss = result.loss;
  report.token_sum = result.token_sum;
  report.trained_tokens = result.trained_tokens;
  report.samples = result.samples;
  report.seconds = monotonic_seconds() - start;
  if (listener_ != nullptr) listener_->evaluation(report);
  return 0;
}

}  // namespace megatron::train
