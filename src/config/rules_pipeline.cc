// Rules of pipeline schedules and virtual stages.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/text.h"
#include "config/rules.h"
#include "schedule/auto_schedule.h"
#include "schedule/generators.h"
#include "schedule/program_text.h"
#include "schedule/schedule_name.h"
#include "schedule/training_program.h"
#include "spec/batch_schedule.h"

namespace megatron::config {
namespace {

using spec::PipelineSchedule;

constexpr std::string_view kSchedule = "--pipeline-schedule", kFile = "--pipeline-schedule-file",
                           kStages = "--num-virtual-stages-per-pipeline-rank",
                           kLayers = "--num-layers-per-virtual-pipeline-stage",
                           kGroup = "--microbatch-group-size-per-virtual-pipeline-stage",
                           kLimit = "--pipeline-memory-limit", kTimes = "--pipeline-times",
                           kLayout = "--pipeline-model-parallel-layout";

/// Options that set or count single stages.
constexpr std::array<std::string_view, 4> kEndOptions = {
    "--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers",
    "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"};

/// The option that asks for several stages per rank, or the schedule that needs them.
std::string_view chunk_option(const RuleContext& c) {
  return c.given(kStages)   ? kStages
         : c.given(kLayers) ? kLayers
         : c.given(kLayout) ? kLayout
         : c.given(kFile)   ? kFile
                            : kSchedule;
}

void virtual_stages(RuleContext& c) {
  const auto& p = c.run().parallel;
  const auto& i = c.draft().described.interleaving;
  if (i.layers_per_virtual_stage && i.virtual_stages_per_rank) c.exclusive(kLayers, kStages);
  if (p.virtual_chunks == 1) return;
  if (p.pipeline_parallel == 1)
    c.error({"--pipeline-model-parallel-size", chunk_option(c)},
            "virtual stages need more than one pipeline stage; nearest: 2");
  if (p.pipeline_parallel == 2 && !i.overlap_p2p && p.schedule == PipelineSchedule::interleaved)
    c.error({"--pipeline-model-parallel-size", "--no-overlap-p2p-communication"},
            "with 2 stages the next and the previous stage are the same rank, so exchanges of virtual stages must "
            "overlap");
}

/// A layout says all of the cut: nothing else may. Megatron-LM refuses the same.
void layout(RuleContext& c) {
  const auto& layout = c.run().parallel.pipeline_layout;
  if (!layout) return;
  for (std::string_view option : {kStages, kLayers})
    if (c.given(option)) c.exclusive(kLayout, option);
  for (std::string_view option : kEndOptions)
    if (c.user_asks(option))
      c.error({kLayout, option}, "a layout excludes the options that set or count single stages");
  if (layout->find('m') != std::string::npos)
    c.not_built({kLayout}, "multi-token-prediction layers (m) are not built in this version; use a layout without m");
}

/// What to give to have `chunks` stages per rank, in the terms of the option that asks for another number.
std::string nearest_for(const RuleContext& c, int chunks) {
  const std::int64_t stages = std::int64_t{c.run().parallel.pipeline_parallel} * chunks;
  const std::string_view option = chunk_option(c);
  if (option == kLayout) return str_cat("; nearest: a layout of ", counted(stages, "stage"));
  if (option == kFile) return {};
  if (option != kLayers) return str_cat("; nearest: ", option == kStages ? "" : str_cat(kStages, " "), chunks);
  const std::int64_t layers = c.run().model.num_layers;
  return layers % stages == 0 ? str_cat("; nearest: ", layers / stages)
                              : str_cat("; nearest: ", kStages, " ", chunks, " instead");
}

/// A schedule must fit the number of stages that other options give.
void schedule_kind(RuleContext& c) {
  const auto& p = c.run().parallel;
  if (c.given(kSchedule) && c.given(kFile)) c.exclusive(kSchedule, kFile);
  const std::string name(schedule::name_of(p.schedule));
  const auto wrong_chunks = [&](const char* has, int chunks) {
    c.error({kSchedule, chunk_option(c)},
            str_cat(name, has, counted(chunks, "stage"), " per rank, not ", p.virtual_chunks, nearest_for(c, chunks)));
  };
  const schedule::ChunkRange range = schedule::chunks_of(p.schedule);
  if (c.given(kSchedule) && p.virtual_chunks > range.most && range.most == 1)
    c.error({kSchedule, chunk_option(c)},
            str_cat(name, " has one stage per rank, not ", p.virtual_chunks, "; nearest: interleaved"));
  else if (p.virtual_chunks > range.most && range.most > 1)
    wrong_chunks(" has at most ", range.most);
  else if (p.virtual_chunks < range.least && p.schedule == PipelineSchedule::interleaved)
    c.error({kSchedule, chunk_option(c) == kSchedule ? kStages : chunk_option(c)},
            str_cat("the interleaved schedule needs at least 2 virtual stages per rank",
                    chunk_option(c) == kSchedule ? "; nearest: 2" : nearest_for(c, 2)));
  else if (p.virtual_chunks < range.least)
    wrong_chunks(" has ", range.least);
  if (p.placement_kind != spec::PlacementKind::v) return;
  for (std::string_view option : kEndOptions)
    if (c.user_asks(option))
      c.error({option, kSchedule}, "V placement has the first and the last stage on one rank; nearest: leave it out");
}

/// Values of one schedule given to another.
void schedule_values(RuleContext& c) {
  const auto& p = c.run().parallel;
  if (c.user_asks(kGroup) && p.schedule != PipelineSchedule::interleaved)
    c.error({kGroup, kSchedule}, "only the interleaved schedule has groups of micro-batches");
  const bool searched = p.schedule == PipelineSchedule::zb_auto;
  if (c.user_asks(kTimes) && !searched) c.error({kTimes}, "needs --pipeline-schedule zb-auto");
  if (c.user_asks(kLimit) && !searched && p.schedule != PipelineSchedule::from_file)
    c.error({kLimit}, "needs --pipeline-schedule zb-auto or --pipeline-schedule-file");
}

std::string file_problem(const std::string& path) {
  try {
    schedule::read_named_program(path);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

void post_validation(RuleContext& c) {
  if (c.run().parallel.pipeline_post_validation && c.run().parallel.pipeline_parallel == 1)
    c.notice("--pipeline-post-validation: without effect in a pipeline of one stage");
}

/// The program of every step must exist: Megatron-LM's rules of groups, a file's passes, the memory of zb-auto.
void program(RuleContext& c) {
  const auto& p = c.run().parallel;
  const auto& b = c.run().batch;
  const schedule::ChunkRange range = schedule::chunks_of(p.schedule);
  if (p.virtual_chunks < range.least || (range.most > 0 && p.virtual_chunks > range.most)) return;
  if (c.mode() == ParseMode::layout) return;
  const auto report = [&](const std::string& problem) {
    if (p.schedule == PipelineSchedule::interleaved)
      c.error({batch_option(b), kGroup, "--pipeline-model-parallel-size"}, problem);
    else
      c.error({p.schedule == PipelineSchedule::zb_auto ? kLimit : kFile}, problem);
  };
  if (b.num_micro_batches < 1) {
    if (p.schedule == PipelineSchedule::from_file)
      if (const std::string problem = file_problem(p.schedule_file); !problem.empty()) report(problem);
    return;
  }
  // Of a batch that grows, all sizes.
  const spec::BatchSchedule schedule(b);
  for (const spec::BatchStretch& stretch : schedule.trajectory(std::nullopt)) {
    if (b.train_iters && stretch.first_iteration >= std::max<std::int64_t>(*b.train_iters, 1)) break;
    if (b.train_samples && stretch.first_sample >= std::max<std::int64_t>(*b.train_samples, 1)) break;
    if (stretch.batch.num_micro_batches < 1) break;  // another rule says so
    const std::string problem = schedule::program_problem(p, stretch.batch.num_micro_batches);
    if (problem.empty()) continue;
    return report(schedule.is_constant() ? problem
                                         : str_cat("global batch ", stretch.batch.global_batch, " (from sample ",
                                                   stretch.first_sample, " on): ", problem));
  }
}

}  // namespace

void report_split_problem(RuleContext& c, const std::string& problem) {
  const auto& p = c.run().parallel;
  // Options that the placement excludes have been reported, and layers counted with them are worth no advice.
  const bool excluded = p.placement_kind == spec::PlacementKind::v &&
                        std::any_of(kEndOptions.begin(), kEndOptions.end(),
                                    [&c](std::string_view option) { return c.user_asks(option); });
  if (problem.empty() || excluded) return;
  std::vector<std::string_view> names = {"--num-layers", "--pipeline-model-parallel-size"};
  const auto add_if = [&names](bool asked, std::string_view option) {
    if (asked) names.push_back(option);
  };
  add_if(p.pipeline_layout.has_value(), kLayout);
  add_if(c.user_asks(kStages), kStages);
  add_if(c.user_asks(kLayers), kLayers);
  add_if(p.decoder_first_pipeline_num_layers.has_value(), "--decoder-first-pipeline-num-layers");
  add_if(p.decoder_last_pipeline_num_layers.has_value(), "--decoder-last-pipeline-num-layers");
  add_if(p.account_for_embedding_in_pipeline_split, "--account-for-embedding-in-pipeline-split");
  add_if(p.account_for_loss_in_pipeline_split, "--account-for-loss-in-pipeline-split");
  if (names.size() == 2 && p.virtual_chunks > 1) names.push_back(chunk_option(c));
  c.error(names, problem);
}

std::vector<Rule> pipeline_rules() {
  return {{"virtual stages", virtual_stages},   {"layout", layout},
          {"schedule kind", schedule_kind},     {"schedule values", schedule_values},
          {"post-validation", post_validation}, {"program", program}};
}

}  // namespace megatron::config
