// What follows from the options of the pipeline: its schedule, the stages of each rank, the layers of each stage.
#include "base/check.h"
#include "config/derive.h"
#include "config/nearest.h"
#include "schedule/program_text.h"
#include "schedule/schedule_name.h"
#include "spec/layer_split.h"

namespace megatron::config {
namespace {

/// Kind, placement and, of a file, number of stages, as far as the options name them.
struct NamedSchedule {
  std::optional<spec::PipelineSchedule> kind;
  spec::PlacementKind placement = spec::PlacementKind::linear;
  int chunks = 1;
};

/// A file that cannot be read counts as one stage per rank; a rule says what is wrong with it.
NamedSchedule named_schedule(const Draft& d) {
  NamedSchedule named;
  named.chunks = d.run.parallel.virtual_chunks;
  named.placement = d.run.parallel.placement_kind;
  if (!d.run.parallel.schedule_file.empty()) {
    named.kind = spec::PipelineSchedule::from_file;
    try {
      const schedule::Program program = schedule::read_program(d.run.parallel.schedule_file);
      named.chunks = program.placement.num_chunks;
      named.placement = program.placement.kind;
    } catch (const Error&) {
    }
    return named;
  }
  if (d.switches.pipeline_schedule.empty()) return named;
  named.kind = schedule::find_schedule(d.switches.pipeline_schedule);
  if (named.kind != spec::PipelineSchedule::zb_v) return named;
  named.chunks = 2;
  named.placement = spec::PlacementKind::v;
  return named;
}

/// Virtual stages per rank, or 0 where the layers do not divide into them; `problem` says why.
int derive_chunks(const Draft& d, int unless_given, std::string& problem) {
  const auto& i = d.described.interleaving;
  const auto& p = d.run.parallel;
  if (i.virtual_stages_per_rank) return static_cast<int>(*i.virtual_stages_per_rank);
  if (!i.layers_per_virtual_stage) return unless_given;
  const std::int64_t total = d.run.model.num_layers + (p.account_for_embedding_in_pipeline_split ? 1 : 0) +
                             (p.account_for_loss_in_pipeline_split ? 1 : 0);
  const std::int64_t per_rank = total / p.pipeline_parallel;
  if (p.decoder_first_pipeline_num_layers || p.decoder_last_pipeline_num_layers) {
    problem =
        "uneven pipeline split needs --num-virtual-stages-per-pipeline-rank, not "
        "--num-layers-per-virtual-pipeline-stage";
  } else if (total % p.pipeline_parallel != 0 || per_rank % *i.layers_per_virtual_stage != 0) {
    problem = str_cat(total, " layers do not divide into pipeline size ", p.pipeline_parallel, " x ",
                      *i.layers_per_virtual_stage, " layers per virtual stage");
    // Layers per virtual stage that do divide, where the pipeline itself does.
    problem += total % p.pipeline_parallel != 0
                   ? str_cat("; nearest: ", nearest_multiples(total, p.pipeline_parallel), " layers")
                   : str_cat("; nearest: ", nearest_divisors(*i.layers_per_virtual_stage, per_rank));
  }
  return problem.empty() ? static_cast<int>(per_rank / *i.layers_per_virtual_stage) : 0;
}

/// Schedule and placement of a pipeline with this many stages per rank.
void set_schedule(spec::ParallelSpec& p, const NamedSchedule& named, int chunks) {
  p.virtual_chunks = chunks;
  p.placement_kind = named.placement;
  if (named.kind)
    p.schedule = *named.kind;
  else if (chunks > 1 && p.schedule == spec::PipelineSchedule::one_f_one_b)
    p.schedule = spec::PipelineSchedule::interleaved;
  if (p.schedule == spec::PipelineSchedule::zb_auto && chunks == 2) p.placement_kind = spec::PlacementKind::v;
}

/// ranges[s mod p][s ÷ p] is stage s of the split; a stage goes to its rank of the placement.
void set_layers(Draft& d, const std::vector<std::vector<spec::LayerRange>>& ranges) {
  const spec::StagePlacement placement = d.run.parallel.placement();
  const auto p = static_cast<std::size_t>(placement.num_ranks);
  d.described.layers_per_stage.assign(p, std::vector<std::int64_t>(ranges.front().size(), 0));
  d.run.parallel.layers_per_stage.clear();
  for (int stage = 0; stage < placement.num_stages(); ++stage) {
    const auto s = static_cast<std::size_t>(stage);
    const auto rank = static_cast<std::size_t>(placement.rank_of(stage));
    const std::int64_t count = ranges[s % p][s / p].count;
    d.described.layers_per_stage[rank][static_cast<std::size_t>(placement.chunk_of(stage))] = count;
    d.run.parallel.layers_per_stage.push_back(count);
  }
}

}  // namespace

void derive_pipeline(Draft& d, Derived& out) {
  auto& p = d.run.parallel;
  const auto& m = d.run.model;
  const NamedSchedule named = named_schedule(d);
  const auto& i = d.described.interleaving;
  p.micro_batch_group_size = i.micro_batch_group_size.value_or(p.micro_batch_group_size);
  // A layout says how many stages there are.
  set_schedule(p, named,
               p.pipeline_layout ? named.chunks : static_cast<int>(i.virtual_stages_per_rank.value_or(named.chunks)));
  if (m.num_layers == 0) return;
  try {
    std::vector<std::vector<spec::LayerRange>> ranges;
    bool automatic = false;
    if (p.pipeline_layout) {
      ranges = spec::split_by_layout(*p.pipeline_layout, p.pipeline_parallel, m.num_layers, d.described.mtp_num_layers);
    } else {
      const int chunks = derive_chunks(d, named.chunks, out.split_problem);
      if (chunks == 0) return;
      const spec::LayerSplit split{m.num_layers,
                                   p.pipeline_parallel,
                                   chunks,
                                   p.decoder_first_pipeline_num_layers,
                                   p.decoder_last_pipeline_num_layers,
                                   p.account_for_embedding_in_pipeline_split,
                                   p.account_for_loss_in_pipeline_split,
                                   !i.virtual_stages_per_rank && !i.layers_per_virtual_stage};
      automatic = spec::needs_automatic_split(split);
      ranges = spec::split_layers(split);
    }
    const auto chunks = static_cast<int>(ranges.front().size());
    set_schedule(p, named, chunks);
    set_layers(d, ranges);
    out.automatic_split = automatic;
    if (chunks > 1) d.described.virtual_pipeline_size = chunks;
  } catch (const ConfigError& error) {
    out.split_problem = error.what();
  }
}

}  // namespace megatron::config
