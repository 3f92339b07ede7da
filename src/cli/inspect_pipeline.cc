// megatron inspect pipeline: what each rank does in a step, and when; of a schedule alone, or of a run.
#include <algorithm>

#include "base/check.h"
#include "cli/command.h"
#include "cli/inspect.h"
#include "cli/pipeline_report.h"
#include "config/input.h"
#include "config/nearest.h"
#include "config/parse.h"
#include "config/text_value.h"
#include "schedule/passes.h"
#include "schedule/program_text.h"
#include "schedule/run_costs.h"
#include "schedule/schedule_name.h"
#include "schedule/training_program.h"

namespace megatron::cli {
namespace {

using Own = std::map<std::string, std::string>;
using spec::PipelineSchedule;

constexpr std::int64_t kMostPasses = 4'000'000;

/// Options of a schedule without a model.
std::vector<config::CommandOption> schedule_options() {
  return {{"--schedule", true, "gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v or zb-auto; without any model."},
          {"--stages", true, "Pipeline ranks."},
          {"--micro-batches", true, "Micro-batches of a step."},
          {"--virtual-stages", true, "Stages of a rank."},
          {"--layout", true, "linear or v: where the two stages of a rank stand with zb-auto."}};
}

/// Options of a run that a schedule without a model takes too.
std::vector<config::CommandOption> shared_options() {
  return {{"--pipeline-memory-limit", true, ""},
          {"--pipeline-schedule-file", true, ""},
          {"--microbatch-group-size-per-virtual-pipeline-stage", true, ""}};
}

std::int64_t number_of(const Own& own, const char* name, std::int64_t otherwise, std::int64_t most) {
  const auto it = own.find(name);
  if (it == own.end()) return otherwise;
  const auto number = config::parse_integer(it->second);
  if (!number || *number < 1 || *number > most)
    throw ConfigError(str_cat(name, " ", it->second, ": must be a whole number from 1 to ", most));
  return *number;
}

PipelineSchedule schedule_of(const Own& own, bool several_stages) {
  const auto it = own.find("--schedule");
  if (it == own.end()) return several_stages ? PipelineSchedule::interleaved : PipelineSchedule::one_f_one_b;
  const auto known = schedule::find_schedule(it->second);
  if (known) return *known;
  std::string all;
  for (const std::string& name : schedule::schedule_names()) all += (all.empty() ? "" : ", ") + name;
  const std::string near = config::nearest_name(it->second, schedule::schedule_names());
  throw ConfigError(str_cat("--schedule ", it->second, ": known are ", all, near.empty() ? "" : "; nearest: " + near));
}

void check_size(std::int64_t ranks, std::int64_t m, std::int64_t chunks, const std::string& option) {
  if (m <= kMostPasses / (ranks * chunks)) return;
  throw ConfigError(str_cat(option, ": ", m, " micro-batches on ", ranks * chunks,
                            " stages are too many to list; at most ", kMostPasses / (ranks * chunks)));
}

/// Number and placement of the stages per rank.
void set_stages(spec::ParallelSpec& p, const Own& own) {
  const auto layout = own.find("--layout");
  const bool v = layout != own.end() && layout->second == "v";
  if (layout != own.end() && !v && layout->second != "linear")
    throw ConfigError(str_cat("--layout ", layout->second, ": must be linear or v"));
  const std::string name(schedule::name_of(p.schedule));
  const schedule::ChunkRange range = schedule::chunks_of(p.schedule);
  const bool searched = p.schedule == PipelineSchedule::zb_auto;
  if (v && !searched && p.schedule != PipelineSchedule::zb_v)
    throw ConfigError(str_cat("--layout v: ", name, " has linear placement; zb-v and zb-auto can have V"));
  if (layout != own.end() && !v && p.schedule == PipelineSchedule::zb_v)
    throw ConfigError("--layout linear: zb-v has V placement");
  const std::int64_t otherwise = searched ? (v ? 2 : 1) : range.least;
  const std::int64_t chunks = number_of(own, "--virtual-stages", otherwise, 1024);
  if (chunks < range.least || (range.most > 0 && chunks > range.most))
    throw ConfigError(str_cat("--virtual-stages ", chunks, ": ", name, " has ", range.most == 0 ? "at least " : "",
                              range.least, range.most > range.least ? str_cat(" or ", range.most) : "", " per rank"));
  if (searched && v && chunks != 2) throw ConfigError("--layout v: needs 2 virtual stages per rank");
  if (searched && layout != own.end() && !v && chunks != 1)
    throw ConfigError("--layout linear: zb-auto has one stage per rank then; use --layout v");
  p.virtual_chunks = static_cast<int>(chunks);
  if (p.schedule == PipelineSchedule::zb_v || (searched && chunks == 2)) p.placement_kind = spec::PlacementKind::v;
}

double limit_of(const Own& own) {
  const auto it = own.find("--pipeline-memory-limit");
  if (it == own.end()) return 0.0;
  const auto number = config::parse_real(it->second);
  if (!number || *number <= 0.0)
    throw ConfigError(str_cat("--pipeline-memory-limit ", it->second, ": must be above 0"));
  return *number;
}

void check_limit(const schedule::Program& program, double limit, double kept) {
  try {
    schedule::check_memory(program, limit, kept);
  } catch (const Error& error) {
    throw ConfigError(error.what());
  }
}

/// The file is a part of the command line: whatever is wrong with it is a mistake in that.
schedule::Program program_of(const std::string& path) {
  try {
    return schedule::read_program(path);
  } catch (const Error& error) {
    throw ConfigError(str_cat("--pipeline-schedule-file ", error.what()));
  }
}

/// A program from a file; other options may name its sizes, and must be right.
int show_file(const Own& own) {
  const std::string path = own.at("--pipeline-schedule-file");
  const schedule::Program program = program_of(path);
  const auto expect = [&](const char* option, std::int64_t is) {
    if (number_of(own, option, is, kMostPasses) != is)
      throw ConfigError(str_cat(option, " ", own.at(option), ": ", path, " has ", is));
  };
  if (own.count("--schedule") > 0) throw ConfigError("--schedule and --pipeline-schedule-file exclude each other");
  expect("--stages", program.placement.num_ranks);
  expect("--micro-batches", schedule::num_micro_batches(program));
  expect("--virtual-stages", program.placement.num_chunks);
  const ReportOptions options = read_report_options(own, program.placement);
  check_limit(program, limit_of(own), options.kept_after_input_grad);
  try {
    print_pipeline_report("file", program, options, {});
  } catch (const IoError&) {
    throw;
  } catch (const Error& error) {
    throw ConfigError(str_cat(path, ": ", error.what()));
  }
  return 0;
}

int show_schedule(const Own& own) {
  for (const char* name : {"--stages", "--micro-batches"})
    if (own.count(name) == 0) throw ConfigError(str_cat(name, " is required"));
  spec::ParallelSpec p;
  const auto chunks = own.find("--virtual-stages");
  p.schedule = schedule_of(own, chunks != own.end() && chunks->second != "1");
  p.pipeline_parallel = static_cast<int>(number_of(own, "--stages", 1, 1'000'000));
  const std::int64_t m = number_of(own, "--micro-batches", 1, kMostPasses);
  set_stages(p, own);
  check_size(p.pipeline_parallel, m, p.virtual_chunks, str_cat("--micro-batches ", m));
  constexpr const char* kGroup = "--microbatch-group-size-per-virtual-pipeline-stage";
  if (own.count(kGroup) > 0 && p.schedule != PipelineSchedule::interleaved)
    throw ConfigError(str_cat(kGroup, ": only the interleaved schedule has groups of micro-batches"));
  p.micro_batch_group_size = number_of(own, kGroup, p.pipeline_parallel, kMostPasses);
  p.pipeline_times = times_of_rank(own, p.placement());
  const double limit = limit_of(own);
  if (limit > 0.0) p.pipeline_memory_limit = limit;
  const ReportOptions options = read_report_options(own, p.placement());
  if (options.times_differ)
    for (const schedule::PassTimes& t : options.durations.of_stage)
      p.pipeline_stage_times.push_back({t.forward, t.backward_input, t.backward_weight, options.durations.message});
  const schedule::Program program = schedule::training_passes(p, m, options.kept_after_input_grad);
  check_limit(program, limit, options.kept_after_input_grad);
  print_pipeline_report(std::string(schedule::name_of(p.schedule)), program, options, {});
  return 0;
}

/// The first layer of each rank's first stage, and the layers of all its stages.
std::vector<RankLayers> layers_of(const config::ParsedRun& run) {
  const spec::StagePlacement placement = run.spec.parallel.placement();
  std::vector<RankLayers> layers;
  if (run.described.layers_per_stage.empty()) return layers;
  layers.resize(static_cast<std::size_t>(placement.num_ranks));
  std::int64_t next = 0;
  for (int stage = 0; stage < placement.num_stages(); ++stage) {
    const auto rank = static_cast<std::size_t>(placement.rank_of(stage));
    const auto chunk = static_cast<std::size_t>(placement.chunk_of(stage));
    if (chunk == 0) layers[rank].first_layer = next;
    next += run.described.layers_per_stage[rank][chunk];
    layers[rank].num_layers += run.described.layers_per_stage[rank][chunk];
  }
  return layers;
}

int show_run(Arguments args) {
  std::vector<config::CommandOption> own = json_option();
  for (const config::CommandOption& option : report_options()) own.push_back(option);
  const config::ParsedRun run = config::parse_run(args, {config::ParseMode::validate, own, {}});
  config::require_accepted(run);
  const spec::ParallelSpec& p = run.spec.parallel;
  const std::int64_t m = run.spec.batch.num_micro_batches;
  if (m < 1) throw ConfigError("--micro-batch-size is missing: the schedule needs the number of micro-batches");
  check_size(p.pipeline_parallel, m, p.virtual_chunks,
             str_cat("--global-batch-size ", run.spec.batch.global_batch_size));
  ReportOptions options = read_report_options(run.own, p.placement());
  if (run.own.count("--stash-kept-after-input-grad") == 0)
    options.kept_after_input_grad = schedule::searched_stash_weight(run.spec);
  if (!options.times_given)
    for (int stage = 0; stage < p.placement().num_stages(); ++stage) {
      const auto rank = static_cast<std::size_t>(p.placement().rank_of(stage));
      const auto chunk = static_cast<std::size_t>(p.placement().chunk_of(stage));
      const double layers = run.described.layers_per_stage.empty()
                                ? 1.0
                                : static_cast<double>(run.described.layers_per_stage[rank][chunk]);
      // A stage without layers still passes its tensor on.
      const double time = std::max(layers, 1.0);
      options.durations.of_stage[static_cast<std::size_t>(stage)] = {time, time, time};
    }
  print_pipeline_report(std::string(schedule::name_of(p.schedule)),
                        schedule::training_passes(p, m, options.kept_after_input_grad), options, layers_of(run));
  return 0;
}

}  // namespace

std::vector<config::CommandOption> inspect_options() {
  std::vector<config::CommandOption> options = json_option();
  for (const auto& more : {schedule_options(), report_options()})
    for (config::CommandOption option : more) {
      option.help = "inspect pipeline: " + option.help;
      options.push_back(option);
    }
  return options;
}

int inspect_pipeline(Arguments args) {
  std::vector<config::CommandOption> own = json_option();
  for (const auto& more : {schedule_options(), report_options(), shared_options()})
    for (const config::CommandOption& option : more) own.push_back(option);
  const config::Tables tables;
  config::Input input;
  config::read_command_line(tables, {args.begin(), args.end()}, own, "command line", input);
  const std::vector<config::CommandOption> alone = schedule_options();
  const bool without_model =
      std::any_of(alone.begin(), alone.end(),
                  [&](const config::CommandOption& option) { return input.own.count(option.name) > 0; }) ||
      (input.own.count("--pipeline-schedule-file") > 0 && input.known.empty() && input.unknown.empty());
  if (!without_model) return show_run(args);
  std::string problems;
  for (const std::string& problem : input.problems) problems += (problems.empty() ? "" : "\n") + problem;
  for (const auto* list : {&input.known, &input.foreign, &input.unknown})
    for (const config::Occurrence& o : *list)
      problems += str_cat(problems.empty() ? "" : "\n", o.written, ": not an option of a schedule without a model");
  for (const std::string& word : input.rest)
    problems += str_cat(problems.empty() ? "" : "\n", word, ": belongs to no option");
  if (!problems.empty()) throw ConfigError(problems);
  return input.own.count("--pipeline-schedule-file") > 0 ? show_file(input.own) : show_schedule(input.own);
}

}  // namespace megatron::cli
