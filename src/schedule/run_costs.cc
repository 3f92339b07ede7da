#include "schedule/run_costs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "schedule/training_program.h"
#include "spec/batch_schedule.h"
#include "spec/rank_order.h"

namespace megatron::schedule {
namespace {

using Peak = spec::StagePasses::Peak;

void raise(Peak& peak, const Peak& other) {
  peak.activations = std::max(peak.activations, other.activations);
  peak.communication = std::max(peak.communication, other.communication);
}

/// Follows one rank's list as the engine executes it.
class Walk {
 public:
  Walk(std::span<const Instruction> instructions, const spec::StagePlacement& placement,
       std::span<const spec::StagePasses> passes, std::int64_t message)
      : instructions_(instructions), placement_(placement), passes_(passes), message_(message) {}

  Peak peak() {
    // From each sender one receive is posted ahead.
    for (const Instruction& i : instructions_)
      if (is_receive(i.op)) ++expected_[sender_of(i)];
    for (auto& [sender, count] : expected_) post(count);
    for (const Instruction& i : instructions_) {
      if (!interleaved()) drop_sent();
      follow(i);
      if (is_compute(i.op)) drop_sent();
    }
    return peak_;
  }

 private:
  int sender_of(const Instruction& i) const {
    return placement_.rank_of(i.stage + (i.op == Op::receive_forward ? -1 : 1));
  }
  void post(std::int64_t& to_come) {
    if (to_come == 0) return;
    --to_come;
    live_.communication += message_;
    raise(peak_, live_);
  }
  bool exists(int stage) const { return stage >= 0 && stage < placement_.num_stages(); }
  /// What comes from stage `from`, or nothing: it leaves the account, since the pass counts it.
  void take_input(int from, int stage) {
    if (!exists(from)) return;
    (placement_.rank_of(from) == placement_.rank_of(stage) ? live_.activations : live_.communication) -= message_;
  }
  bool interleaved() const { return placement_.num_chunks > 1 && placement_.kind == spec::PlacementKind::linear; }
  /// Messages are gone when the next instruction begins. Those of an interleaved pipeline wait for one more pass, since
  /// its ranks run many forward passes ahead of the next one.
  void drop_sent() {
    live_.activations -= sent_;
    sent_ = 0;
  }
  void give_output(int to) {
    if (exists(to)) live_.activations += message_;
  }
  void run(const Peak& within) {
    raise(peak_, {live_.activations + within.activations, live_.communication + within.communication});
  }

  void follow(const Instruction& i) {
    if (is_receive(i.op)) return post(expected_[sender_of(i)]);
    if (is_send(i.op)) {
      sent_ += message_;
      return;
    }
    const spec::StagePasses& stage = passes_[static_cast<std::size_t>(placement_.chunk_of(i.stage))];
    if (i.op == Op::forward) {
      take_input(i.stage - 1, i.stage);
      run(stage.forward);
      live_.activations += stage.stash;
      return give_output(i.stage + 1);
    }
    if (i.op == Op::backward_weight) {
      live_.activations -= stage.kept_for_weights;
      return;
    }
    live_.activations -= stage.stash;
    take_input(i.stage + 1, i.stage);
    run(i.op == Op::backward ? stage.backward : stage.input_backward);
    if (i.op == Op::backward_input) live_.activations += stage.kept_for_weights;
    give_output(i.stage - 1);
  }

  std::span<const Instruction> instructions_;
  const spec::StagePlacement& placement_;
  std::span<const spec::StagePasses> passes_;
  std::int64_t message_, sent_ = 0;
  std::map<int, std::int64_t> expected_;  // by sender: receives that are not yet posted
  Peak live_, peak_;
};

bool has_weight_passes(const Program& program) {
  for (const std::vector<Instruction>& list : program.lists)
    for (const Instruction& i : list)
      if (i.op == Op::backward_weight) return true;
  return false;
}

spec::StageBorders borders_of(const spec::StagePlacement& placement, int stage) {
  const auto elsewhere = [&](int other) { return placement.rank_of(other) != placement.rank_of(stage); };
  return {stage == 0 || elsewhere(stage - 1), stage + 1 == placement.num_stages() || elsewhere(stage + 1)};
}

/// Micro-batches whose program is followed: all, or enough for peaks that grow no more (with GPipe: by a stash with
/// each micro-batch), with the same remainder.
std::int64_t micro_batches_to_follow(const spec::ParallelSpec& parallel, std::int64_t count) {
  if (parallel.schedule == spec::PipelineSchedule::from_file) return count;
  const std::int64_t group = std::max<std::int64_t>(parallel.micro_batch_group_size, parallel.pipeline_parallel);
  const std::int64_t enough = 4 * group * parallel.virtual_chunks;
  return count <= enough ? count : enough + (count - enough) % group;
}

spec::PassSetting pass_setting(const spec::RunSpec& run, bool weights_apart) {
  return {run.batch.micro_batch_size * run.model.seq_length, spec::element_bytes(run), run.model.hidden_dropout > 0.0,
          weights_apart};
}

/// A program of a step, and whether any of its backward passes comes apart.
struct StepProgram {
  explicit StepProgram(Program made) : program(std::move(made)), splits_backward(has_weight_passes(program)) {}
  Program program;
  bool splits_backward;
};

Peak training_peak(const spec::RunSpec& run, const StepProgram& step, int rank) {
  const spec::StagePlacement placement = run.parallel.placement();
  const spec::PassSetting setting = pass_setting(run, step.splits_backward);
  std::vector<spec::StagePasses> passes;
  const std::vector<spec::StageShape> shapes = spec::rank_shapes(run, rank);
  for (int chunk = 0; chunk < placement.num_chunks; ++chunk)
    passes.push_back(spec::stage_passes(shapes[static_cast<std::size_t>(chunk)], setting,
                                        borders_of(placement, placement.stage_of(rank, chunk))));
  return peak_of_passes(step.program.lists[static_cast<std::size_t>(rank)], placement, passes,
                        spec::message_bytes(run, run.batch.micro_batch_size));
}

/// The programs of a run. zb-auto without times makes a second one after some steps: here the one of equal times.
std::vector<StepProgram> programs_of(const spec::RunSpec& run) {
  const spec::ParallelSpec& p = run.parallel;
  const std::int64_t count = micro_batches_to_follow(p, run.batch.num_micro_batches);
  const double kept = searched_stash_weight(run);
  std::vector<StepProgram> programs;
  programs.emplace_back(training_program(p, count, kept));
  if (!measures_passes(p) || spec::train_iterations(run.batch).value_or(kLastMeasuredStep + 1) <= kLastMeasuredStep)
    return programs;
  spec::ParallelSpec timed = p;
  timed.pipeline_times = spec::PipelineTimes{};
  programs.emplace_back(training_program(timed, count, kept));
  return programs;
}

/// Of forward passes that keep nothing.
Peak evaluation_peak(const spec::RunSpec& run, int rank) {
  const spec::StagePlacement placement = run.parallel.placement();
  const std::int64_t micro_batch = run.batch.eval_micro_batch_size.value_or(run.batch.micro_batch_size);
  const spec::PassSetting setting{micro_batch * run.model.seq_length, spec::element_bytes(run), false, false};
  const std::vector<spec::StageShape> shapes = spec::rank_shapes(run, rank);
  Peak peak;
  for (int chunk = 0; chunk < placement.num_chunks; ++chunk)
    raise(peak, spec::evaluation_peak(shapes[static_cast<std::size_t>(chunk)], setting,
                                      borders_of(placement, placement.stage_of(rank, chunk))));
  return peak;
}

/// GPipe's peak grows by a stash with each micro-batch that is not followed: the program of one more.
std::optional<StepProgram> longer_program(const spec::RunSpec& run) {
  const std::int64_t count = run.batch.num_micro_batches, followed = micro_batches_to_follow(run.parallel, count);
  if (run.parallel.schedule != spec::PipelineSchedule::gpipe || count == followed) return std::nullopt;
  return StepProgram(training_program(run.parallel, followed + 1));
}

/// Of one rank's training steps.
Peak step_peak(const spec::RunSpec& run, std::span<const StepProgram> programs,
               const std::optional<StepProgram>& longer, int rank) {
  Peak peak;
  for (const StepProgram& program : programs) raise(peak, training_peak(run, program, rank));
  if (!longer.has_value()) return peak;
  const std::int64_t count = run.batch.num_micro_batches, followed = micro_batches_to_follow(run.parallel, count);
  const Peak more = training_peak(run, *longer, rank);
  peak.activations += (count - followed) * (more.activations - peak.activations);
  return peak;
}

}  // namespace

spec::StagePasses::Peak peak_of_passes(std::span<const Instruction> instructions, const spec::StagePlacement& placement,
                                       std::span<const spec::StagePasses> passes, std::int64_t message_bytes) {
  return Walk(instructions, placement, passes, message_bytes).peak();
}

double kept_after_input_grad(const spec::RunSpec& run) {
  double kept = 0.0;
  for (int rank = 0; rank < run.parallel.pipeline_parallel; ++rank)
    for (spec::StageShape shape : spec::rank_shapes(run, rank)) {
      shape.has_embedding = shape.has_head = false;
      const spec::StagePasses layers = spec::stage_passes(shape, pass_setting(run, /*weights_apart=*/true), {});
      if (layers.stash > 0)
        kept = std::max(kept, static_cast<double>(layers.kept_for_weights) / static_cast<double>(layers.stash));
    }
  return kept;
}

double searched_stash_weight(const spec::RunSpec& run) {
  return run.parallel.schedule == spec::PipelineSchedule::zb_auto ? kept_after_input_grad(run) : 1.0;
}

RunCosts run_costs(const spec::RunSpec& run) {
  const spec::ParallelSpec& p = run.parallel;
  const std::int64_t count = run.batch.num_micro_batches;
  const std::vector<StepProgram> programs = programs_of(run);
  const std::optional<StepProgram> longer = longer_program(run);
  const int shards = spec::optimizer_shards(run);
  RunCosts costs;
  std::vector<std::vector<spec::RankMemory>> memory;  // [pipeline rank][owner]
  for (int rank = 0; rank < p.pipeline_parallel; ++rank) {
    const spec::FlatPlan plan = spec::flat_plan(run, rank, shards);
    Peak passes = step_peak(run, programs, longer, rank);
    passes.communication += spec::rounded_messages_of_passes(run, plan);
    if (run.batch.eval_iters > 0) raise(passes, evaluation_peak(run, rank));
    std::vector<spec::RankMemory>& owners = memory.emplace_back();
    for (int shard = 0; shard < shards; ++shard) {
      Peak peak = passes;
      raise(peak, spec::update_peak(run, plan, shard));
      owners.push_back(spec::lasting_memory(run, plan, rank, shard));
      owners.back().activations = peak.activations;
      owners.back().communication = peak.communication;
      spec::take_larger(costs.step_traffic, spec::step_traffic(run, plan, rank, shard, count));
    }
  }
  const spec::RankOrder order = spec::dense_order(p);
  for (int rank = 0; rank < order.world_size(); ++rank) {
    const spec::AxisValues at = order.coordinate(rank);
    costs.memory.push_back(memory[static_cast<std::size_t>(at.pp)][static_cast<std::size_t>(shards > 1 ? at.dp : 0)]);
  }
  return costs;
}

}  // namespace megatron::schedule
