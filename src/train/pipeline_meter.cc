#include "train/pipeline_meter.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "base/median.h"
#include "schedule/run_costs.h"
#include "schedule/simulate.h"
#include "schedule/training_program.h"

namespace megatron::train {
namespace {

using schedule::Op;

constexpr std::array<Op, 4> kPasses = {Op::forward, Op::backward_input, Op::backward_weight, Op::backward};

double seconds_of(const pipeline::InstructionTime& time) { return time.end_seconds - time.begin_seconds; }

/// Median of one kind of pass of one virtual stage, over all steps and micro-batches.
double median_pass(const std::vector<pipeline::StepTimes>& steps, int stage, Op op) {
  std::vector<double> values;
  for (const pipeline::StepTimes& step : steps)
    for (const pipeline::InstructionTime& time : step.instructions)
      if (time.instruction.op == op && time.instruction.stage == stage) values.push_back(seconds_of(time));
  return median(std::move(values));
}

/// Seconds in passes, and from the begin of the first to the end of the last.
std::pair<double, double> busy_and_span(const pipeline::StepTimes& step) {
  double busy = 0.0, first = -1.0, last = 0.0;
  for (const pipeline::InstructionTime& time : step.instructions) {
    if (!schedule::is_compute(time.instruction.op)) continue;
    if (first < 0.0) first = time.begin_seconds;
    busy += seconds_of(time);
    last = time.end_seconds;
  }
  return {busy, last - std::max(first, 0.0)};
}

double simulated(const spec::RunSpec& run, const double* stages) {
  schedule::Durations durations;
  const int count = run.parallel.placement().num_stages();
  for (int s = 0; s < count; ++s) {
    const double* const t = stages + 4 * s;
    // A whole backward pass counts as an input gradient without a weight gradient behind it.
    durations.of_stage.push_back({t[0], t[1] > 0.0 ? t[1] : t[3], t[2]});
  }
  return schedule::simulate(
             schedule::training_passes(run.parallel, run.batch.num_micro_batches, schedule::searched_stash_weight(run)),
             durations)
      .bubble_rate();
}

}  // namespace

PipelineFigures PipelineMeter::finish(RankParts& parts) const {
  PipelineFigures figures;
  const spec::RunSpec& run = parts.run();
  const mesh::Mesh& mesh = parts.mesh();
  const spec::StagePlacement& placement = mesh.placement;
  const std::int64_t stages = placement.num_stages(), ranks = placement.num_ranks, steps = std::ssize(steps_);
  if (steps == 0) return figures;
  // [stage][pass] medians, then [step][rank]{busy, span}: each place is filled by one rank.
  Tensor table = parts.exec().zeros({4 * stages + 2 * ranks * steps}, DType::float64, MemoryKind::communication);
  auto* values = table.data<double>();
  if (mesh.tp.rank() == 0 && mesh.dp.rank() == 0) {
    for (int chunk = 0; chunk < placement.num_chunks; ++chunk) {
      const int stage = placement.stage_of(mesh.pp.rank(), chunk);
      for (std::size_t op = 0; op < kPasses.size(); ++op)
        values[4 * static_cast<std::size_t>(stage) + op] = median_pass(steps_, stage, kPasses[op]);
    }
    for (std::int64_t step = 0; step < steps; ++step) {
      double* const place = values + 4 * stages + 2 * (step * ranks + mesh.pp.rank());
      std::tie(place[0], place[1]) = busy_and_span(steps_[static_cast<std::size_t>(step)]);
    }
  }
  if (!mesh.world.trivial()) table = mesh.world.all_reduce(std::move(table), "pipeline_figures");
  const auto* all = std::as_const(table).data<double>();
  figures.ranks.resize(static_cast<std::size_t>(ranks));
  for (int stage = 0; stage < stages; ++stage) {
    StageSeconds& rank = figures.ranks[static_cast<std::size_t>(placement.rank_of(stage))];
    const double* const t = all + 4 * stage;
    rank.forward += t[0];
    rank.input_grad += t[1];
    rank.weight_grad += t[2];
    rank.backward += t[3];
  }
  std::vector<double> bubbles;
  for (std::int64_t step = 0; step < steps; ++step) {
    double busiest = 0.0, longest = 0.0;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const double* const t = all + 4 * stages + 2 * (step * ranks + rank);
      busiest = std::max(busiest, t[0]);
      longest = std::max(longest, t[1]);
    }
    bubbles.push_back(longest > 0.0 ? 1.0 - busiest / longest : 0.0);
  }
  figures.bubble_rate = median(std::move(bubbles));
  figures.simulated_bubble_rate = std::max(0.0, simulated(run, all));
  return figures;
}

}  // namespace megatron::train
