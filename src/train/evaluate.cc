#include "train/evaluate.h"

#include <algorithm>
#include <limits>

#include "schedule/training_program.h"
#include "train/batches.h"

namespace megatron::train {
namespace {

/// Sample i of an endless repetition of a data set.
class WrappedOrder final : public data::SampleOrder {
 public:
  explicit WrappedOrder(std::int64_t size) : size_(size) {}
  std::int64_t dataset_index(std::int64_t global_index) const override { return global_index % size_; }
  void check_start(std::int64_t) const override {}

 private:
  std::int64_t size_;
};

}  // namespace

EvaluationPlan evaluation_plan(const spec::RunSpec& run, std::int64_t first_sample) {
  EvaluationPlan plan;
  plan.first_sample = first_sample;
  plan.global_batch = run.batch.eval_global_batch_size.value_or(run.batch.global_batch_size);
  plan.micro_batch_size = run.batch.eval_micro_batch_size.value_or(run.batch.micro_batch_size);
  plan.num_samples = run.batch.eval_iters * plan.global_batch;
  return plan;
}

EvaluationResult evaluate(RankParts& parts, const data::Dataset& dataset, const EvaluationPlan& plan,
                          const std::atomic<int>* stop_signal) {
  MEGATRON_CHECK_GT(dataset.size(), 0, "evaluation on an empty data set");
  const spec::RunSpec& run = parts.run();
  const mesh::Mesh& mesh = parts.mesh();
  const WrappedOrder order(dataset.size());
  const auto program =
      schedule::evaluation_program(run.parallel, plan.global_batch / (plan.micro_batch_size * mesh.dp.size()));
  const auto& instructions = program.lists[static_cast<std::size_t>(mesh.pp.rank())];
  const std::int64_t end = plan.first_sample + plan.num_samples;

  EvaluationResult result;
  StepSummary total;
  for (std::int64_t first = plan.first_sample; first < end && result.stop_signal == 0; first += plan.global_batch) {
    const auto batches = make_micro_batches(dataset, order, {first, plan.global_batch, plan.micro_batch_size, end},
                                            mesh, run.parallel.sequence_parallel);
    const pipeline::StepOutput output = parts.engine().run_step(instructions, batches, nullptr);
    const StepSummary summary =
        reduce_summary(parts.rank(), local_summary(mesh, output, stop_signal == nullptr ? 0 : stop_signal->load()),
                       "evaluation_summary");
    total.loss_sum.add(summary.loss_sum);
    total.mask_sum.add(summary.mask_sum);
    total.trained_tokens += summary.trained_tokens;
    result.samples += std::min(plan.global_batch, end - first);
    result.stop_signal = summary.stop_signal();
  }
  // Without a token that counts there is no loss, and 0 would look like a perfect one.
  result.loss = total.trained_tokens > 0 ? total.loss() : std::numeric_limits<double>::quiet_NaN();
  result.token_sum = total.token_sum();
  result.trained_tokens = total.trained_tokens;
  return result;
}

}  // namespace megatron::train
