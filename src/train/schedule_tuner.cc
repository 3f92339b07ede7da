#include "train/schedule_tuner.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "base/check.h"
#include "base/median.h"
#include "schedule/passes.h"
#include "schedule/program_text.h"
#include "schedule/simulate.h"
#include "schedule/training_program.h"

namespace megatron::train {
namespace {

constexpr std::int64_t kFirstMeasured = 3, kLastMeasured = 5;

std::string milliseconds(double seconds) { return str_cat(1e3 * seconds, " ms"); }

}  // namespace

ScheduleTuner::ScheduleTuner(RankParts& parts)
    : parts_(parts),
      parallel_(parts.run().parallel),
      measures_(parallel_.schedule == spec::PipelineSchedule::zb_auto && !parallel_.pipeline_times &&
                parallel_.pipeline_parallel > 1) {}

std::vector<schedule::Instruction> ScheduleTuner::program(std::int64_t num_micro_batches) {
  const bool measured = !measures_ && steps_ > 0 && parallel_.schedule == spec::PipelineSchedule::zb_auto;
  passes_ = measured ? share_program(num_micro_batches) : schedule::training_passes(parallel_, num_micro_batches);
  const schedule::Program complete = schedule::insert_communication(passes_);
  if (parts_.is_main()) write(passes_);
  return complete.lists[static_cast<std::size_t>(parts_.mesh().pp.rank())];
}

bool ScheduleTuner::observe(const pipeline::StepTimes& times) {
  if (!measures_ || ++steps_ < kFirstMeasured) return false;
  for (const pipeline::InstructionTime& time : times.instructions) {
    const double seconds = time.end_seconds - time.begin_seconds;
    const schedule::Op op = time.instruction.op;
    if (op == schedule::Op::forward) forward_.push_back(seconds);
    if (op == schedule::Op::backward_input) input_grad_.push_back(seconds);
    if (op == schedule::Op::backward_weight) weight_grad_.push_back(seconds);
    if (schedule::is_receive(op)) receive_.push_back(seconds);
  }
  if (steps_ < kLastMeasured) return false;
  share_times();
  measures_ = false;
  return true;
}

void ScheduleTuner::share_times() {
  const double chunks = parallel_.virtual_chunks;
  const std::array<double, 4> own = {chunks * median(forward_), chunks * median(input_grad_),
                                     chunks * median(weight_grad_),
                                     receive_.empty() ? 0.0 : *std::min_element(receive_.begin(), receive_.end())};
  Tensor sums = parts_.exec().empty({4}, DType::float64, MemoryKind::communication);
  std::copy(own.begin(), own.end(), sums.data<double>());
  sums = parts_.mesh().world.all_reduce(std::move(sums), "pipeline_times");
  const double ranks = parts_.mesh().world_size;
  const auto* in = std::as_const(sums).data<double>();
  // A clock that stands still must not make a time of 0, with which no search can be done.
  constexpr double kLeast = 1e-9;
  parallel_.pipeline_times = spec::PipelineTimes{std::max(in[0] / ranks, kLeast), std::max(in[1] / ranks, kLeast),
                                                 in[2] / ranks, in[3] / ranks};
  for (std::vector<double>* values : {&forward_, &input_grad_, &weight_grad_, &receive_}) values->clear();
}

schedule::Program ScheduleTuner::share_program(std::int64_t num_micro_batches) {
  std::string text;
  if (parts_.is_main()) text = schedule::to_text(schedule::training_passes(parallel_, num_micro_batches));
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
  const spec::PipelineTimes& t = *parallel_.pipeline_times;
  schedule::Durations durations{t.forward, t.input_grad + t.weight_grad, t.input_grad, t.weight_grad, t.message};
  durations.scale.assign(static_cast<std::size_t>(passes_.placement.num_stages()), 1.0 / passes_.placement.num_chunks);
  lines.push_back(str_cat("pipeline schedule for F ", milliseconds(t.forward), ", I ", milliseconds(t.input_grad),
                          ", W ", milliseconds(t.weight_grad), ", message ", milliseconds(t.message),
                          ": simulated bubble ", 100.0 * schedule::simulate(passes_, durations).bubble_rate(), "%"));
  for (std::size_t rank = 0; rank < passes_.lists.size(); ++rank) {
    std::string line = str_cat("pipeline rank ", rank, ":");
    for (const schedule::Instruction& pass : passes_.lists[rank]) line += " " + schedule::to_text(pass);
    lines.push_back(line);
  }
  return lines;
}

}  // namespace megatron::train
