#include "train/schedule_tuner.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "base/check.h"
#include "base/median.h"
#include "schedule/passes.h"
#include "schedule/program_text.h"
#include "schedule/run_costs.h"
#include "schedule/simulate.h"
#include "schedule/training_program.h"

namespace megatron::train {
namespace {

constexpr std::int64_t kFirstMeasured = 3;

/// In the order of the figures that the ranks share.
constexpr std::array<schedule::Op, 3> kPasses = {schedule::Op::forward, schedule::Op::backward_input,
                                                 schedule::Op::backward_weight};

std::string milliseconds(double seconds) { return str_cat(1e3 * seconds, " ms"); }

}  // namespace

ScheduleTuner::ScheduleTuner(RankParts& parts)
    : parts_(parts),
      parallel_(parts.run().parallel),
      kept_(schedule::searched_stash_weight(parts.run())),
      measures_(schedule::measures_passes(parallel_)) {}

std::vector<schedule::Instruction> ScheduleTuner::program(std::int64_t num_micro_batches) {
  const bool measured = !measures_ && steps_ > 0 && parallel_.schedule == spec::PipelineSchedule::zb_auto;
  passes_ =
      measured ? share_program(num_micro_batches) : schedule::training_passes(parallel_, num_micro_batches, kept_);
  const schedule::Program complete = schedule::insert_communication(passes_);
  if (parts_.is_main()) write(passes_);
  const auto rank = static_cast<std::size_t>(parts_.mesh().pp.rank());
  repeatable_ = schedule::repeatable_front(complete)[rank];
  return complete.lists[rank];
}

bool ScheduleTuner::observe(const pipeline::StepTimes& times) {
  if (!measures_ || ++steps_ < kFirstMeasured) return false;
  for (const pipeline::InstructionTime& time : times.instructions) {
    const double seconds = time.end_seconds - time.begin_seconds;
    const schedule::Instruction& done = time.instruction;
    if (schedule::is_compute(done.op)) passes_seconds_[{done.stage, done.op}].push_back(seconds);
    if (schedule::is_receive(done.op)) receive_seconds_.push_back(seconds);
  }
  if (steps_ < schedule::kLastMeasuredStep) return false;
  share_times();
  measures_ = false;
  return true;
}

void ScheduleTuner::share_times() {
  const mesh::Mesh& mesh = parts_.mesh();
  const std::int64_t stages = mesh.placement.num_stages(), words = 3 * stages + 1;
  Tensor sums = parts_.exec().zeros({words}, DType::float64, MemoryKind::communication);
  auto* out = sums.data<double>();
  const double replicas = mesh.tp.size() * mesh.dp.size();
  for (const auto& [key, seconds] : passes_seconds_) {
    const auto op = std::find(kPasses.begin(), kPasses.end(), key.second);
    if (op == kPasses.end()) continue;
    out[3 * key.first + (op - kPasses.begin())] = median(seconds) / replicas;
  }
  if (!receive_seconds_.empty())
    out[3 * stages] = *std::min_element(receive_seconds_.begin(), receive_seconds_.end()) / mesh.world_size;
  sums = mesh.world.all_reduce(std::move(sums), "pipeline_times");
  const auto* in = std::as_const(sums).data<double>();
  spec::PipelineTimes mean{0.0, 0.0, 0.0, in[3 * stages]};
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    // A clock that stands still must not make a time of 0, with which no search can be done.
    constexpr double kLeast = 1e-9;
    const double* const t = in + 3 * stage;
    const spec::PipelineTimes own{std::max(t[0], kLeast), std::max(t[1], kLeast), t[2], in[3 * stages]};
    parallel_.pipeline_stage_times.push_back(own);
    mean.forward += own.forward / mesh.placement.num_ranks;
    mean.input_grad += own.input_grad / mesh.placement.num_ranks;
    mean.weight_grad += own.weight_grad / mesh.placement.num_ranks;
  }
  parallel_.pipeline_times = mean;
  passes_seconds_.clear();
  receive_seconds_.clear();
}

schedule::Program ScheduleTuner::share_program(std::int64_t num_micro_batches) {
  std::string text;
  if (parts_.is_main()) text = schedule::to_text(schedule::training_passes(parallel_, num_micro_batches, kept_));
  Tensor length = parts_.exec().empty({1}, DType::int64, MemoryKind::communication);
  length.data<std::int64_t>()[0] = std::ssize(text);
  parts_.mesh().world.broadcast_from_first_rank(length, "pipeline_schedule_length");
  const std::int64_t bytes = std::as_const(length).data<std::int64_t>()[0];
  Tensor words = parts_.exec().empty({bytes / 8 + 1}, DType::int64, MemoryKind::communication);
  if (parts_.is_main()) std::memcpy(words.data<std::int64_t>(), text.data(), text.size());
  parts_.mesh().world.broadcast_from_first_rank(words, "pipeline_schedule");
  text.resize(static_cast<std::size_t>(bytes));
  std::memcpy(text.data(), std::as_const(words).data<std::int64_t>(), text.size());
  return schedule::parse_program(text);
}

void ScheduleTuner::write(const schedule::Program& passes) const {
  if (parallel_.schedule_out.empty()) return;
  std::ofstream out(parallel_.schedule_out, std::ios::binary);
  out << schedule::to_text(passes);
  out.close();
  if (!out) throw IoError(str_cat("--pipeline-schedule-out ", parallel_.schedule_out, ": cannot be written"));
}

std::vector<std::string> ScheduleTuner::describe() const {
  std::vector<std::string> lines;
  if (!parallel_.pipeline_times) return lines;
  schedule::Durations durations;
  durations.message = parallel_.pipeline_times->message;
  for (const spec::PipelineTimes& t : parallel_.pipeline_stage_times)
    durations.of_stage.push_back({t.forward, t.input_grad, t.weight_grad});
  lines.push_back(str_cat("pipeline schedule for measured times, message ", milliseconds(durations.message),
                          ": simulated bubble ", 100.0 * schedule::simulate(passes_, durations).bubble_rate(), "%"));
  for (std::size_t stage = 0; stage < parallel_.pipeline_stage_times.size(); ++stage) {
    const spec::PipelineTimes& t = parallel_.pipeline_stage_times[stage];
    lines.push_back(str_cat("pipeline stage ", stage, ": F ", milliseconds(t.forward), ", I ",
                            milliseconds(t.input_grad), ", W ", milliseconds(t.weight_grad)));
  }
  for (std::size_t rank = 0; rank < passes_.lists.size(); ++rank) {
    std::string line = str_cat("pipeline rank ", rank, ":");
    for (const schedule::Instruction& pass : passes_.lists[rank]) line += " " + schedule::to_text(pass);
    lines.push_back(line);
  }
  return lines;
}

}  // namespace megatron::train
