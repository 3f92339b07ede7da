// megatron inspect pipeline: what each stage does in a step, and when.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "cli/inspect.h"
#include "schedule/chart.h"
#include "schedule/generators.h"
#include "schedule/passes.h"
#include "schedule/simulate.h"
#include "schedule/training_program.h"

namespace megatron::cli {
namespace {

struct StageView {
  std::int64_t first_layer = 0, num_layers = 0, live_stashes = 0;
  double idle = 0.0;  // share of the step
};

struct PipelineView {
  schedule::Program program;
  schedule::Timeline timeline;
  std::vector<StageView> stages;
  std::int64_t num_micro_batches = 0;
  double ideal_bubble = 0.0;
};

PipelineView make_view(const spec::RunSpec& run) {
  PipelineView view;
  view.num_micro_batches = run.batch.num_micro_batches;
  if (view.num_micro_batches < 1)
    throw ConfigError("--micro-batch-size is missing: the schedule needs the number of micro-batches");
  constexpr std::int64_t kMostPasses = 4'000'000;
  if (view.num_micro_batches > kMostPasses / run.parallel.pipeline_parallel)
    throw ConfigError(str_cat("--global-batch-size ", run.batch.global_batch_size, ": ", view.num_micro_batches,
                              " micro-batches on ", run.parallel.pipeline_parallel,
                              " stages are too many to list; at most ", kMostPasses / run.parallel.pipeline_parallel));
  view.program = schedule::training_program(run.parallel, view.num_micro_batches);
  schedule::validate(view.program);
  // One layer's forward pass takes 1, its backward pass 2.
  schedule::Durations durations;
  for (const std::int64_t layers : run.parallel.layers_per_stage)
    durations.scale.push_back(static_cast<double>(std::max<std::int64_t>(layers, 1)));
  view.timeline = schedule::simulate(view.program, durations);
  view.ideal_bubble = schedule::ideal_bubble(run.parallel.pipeline_parallel, view.num_micro_batches);
  std::int64_t first_layer = 0;
  for (std::size_t stage = 0; stage < view.program.lists.size(); ++stage) {
    StageView s;
    s.first_layer = first_layer;
    s.num_layers = run.parallel.layers_per_stage.empty() ? 0 : run.parallel.layers_per_stage[stage];
    s.live_stashes = schedule::max_live_stashes(view.program.lists[stage]);
    s.idle = 1.0 - view.timeline.busy[stage] / view.timeline.total;
    first_layer += s.num_layers;
    view.stages.push_back(s);
  }
  return view;
}

const char* schedule_name(const spec::RunSpec& run) {
  return run.parallel.schedule == spec::PipelineSchedule::gpipe ? "gpipe" : "1f1b";
}

void print_json(const spec::RunSpec& run, const PipelineView& view) {
  nlohmann::ordered_json json;
  json["schedule"] = schedule_name(run);
  json["pipeline_model_parallel_size"] = run.parallel.pipeline_parallel;
  json["num_microbatches"] = view.num_micro_batches;
  json["bubble"] = view.timeline.bubble;
  json["ideal_bubble"] = view.ideal_bubble;
  for (std::size_t stage = 0; stage < view.stages.size(); ++stage) {
    const StageView& s = view.stages[stage];
    nlohmann::ordered_json instructions = nlohmann::ordered_json::array();
    for (const schedule::Instruction& instruction : view.program.lists[stage])
      instructions.push_back(schedule::to_text(instruction));
    json["stages"].push_back({{"stage", stage},
                              {"first_layer", s.first_layer},
                              {"num_layers", s.num_layers},
                              {"max_live_stashes", s.live_stashes},
                              {"idle", s.idle},
                              {"instructions", std::move(instructions)}});
  }
  std::puts(json.dump().c_str());
}

void print_text(const spec::RunSpec& run, const PipelineView& view) {
  std::printf("schedule %s, %zu stages, %lld micro-batches of %lld samples per step and data-parallel rank\n\n",
              schedule_name(run), view.stages.size(), static_cast<long long>(view.num_micro_batches),
              static_cast<long long>(run.batch.micro_batch_size));
  std::puts("stage, F forward, B backward, r/s receive/send (f activation, b gradient), micro-batch number\n");
  for (std::size_t stage = 0; stage < view.stages.size(); ++stage) {
    std::string line = str_cat("stage ", stage, ":");
    for (const schedule::Instruction& instruction : view.program.lists[stage])
      line += " " + schedule::to_text(instruction);
    std::puts(line.c_str());
  }
  std::puts("\n  stage  layers  first layer  live stashes   idle");
  for (std::size_t stage = 0; stage < view.stages.size(); ++stage) {
    const StageView& s = view.stages[stage];
    std::printf("%7zu %7lld %12lld %13lld %5.1f%%\n", stage, static_cast<long long>(s.num_layers),
                static_cast<long long>(s.first_layer), static_cast<long long>(s.live_stashes), 100.0 * s.idle);
  }
  std::printf("\ntime from left to right, if a layer's backward takes twice its forward and messages are free\n%s",
              schedule::draw_chart(view.program, view.timeline).c_str());
  std::printf("\nbubble %.1f%% of the stages' time; (p - 1)/(m + p - 1) = %.1f%%\n", 100.0 * view.timeline.bubble,
              100.0 * view.ideal_bubble);
}

}  // namespace

int inspect_pipeline(const spec::RunSpec& run, bool json) {
  const PipelineView view = make_view(run);
  if (json)
    print_json(run, view);
  else
    print_text(run, view);
  return 0;
}

}  // namespace megatron::cli
