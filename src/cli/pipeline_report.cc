#include "cli/pipeline_report.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "schedule/chart.h"
#include "schedule/passes.h"
#include "schedule/program_text.h"

namespace megatron::cli {
namespace {

/// What is counted of one rank.
struct RankCounts {
  std::int64_t chunk_stashes = 0, pending_weight = 0;
  double memory = 0.0, idle = 0.0;
};

std::vector<RankCounts> count_ranks(const schedule::Program& program, const schedule::Timeline& timeline, double kept) {
  std::vector<RankCounts> ranks;
  for (std::size_t rank = 0; rank < program.lists.size(); ++rank) {
    RankCounts counts;
    counts.chunk_stashes = schedule::max_live_stashes(program.lists[rank]);
    counts.pending_weight = schedule::max_pending_weight_passes(program.lists[rank]);
    counts.memory = schedule::max_stash_weight(program.lists[rank], kept) / program.placement.num_chunks;
    counts.idle = timeline.total > 0.0 ? 1.0 - timeline.busy[rank] / timeline.total : 0.0;
    ranks.push_back(counts);
  }
  return ranks;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw IoError(str_cat(path, ": cannot be written"));
}

void print_json(const std::string& name, const schedule::Program& program, const schedule::Timeline& timeline,
                const std::vector<RankCounts>& ranks, const std::vector<RankLayers>& layers) {
  nlohmann::ordered_json json;
  json["schedule"] = name;
  json["stages"] = program.placement.num_ranks;
  json["micro_batches"] = schedule::num_micro_batches(program);
  json["chunks"] = program.placement.num_chunks;
  json["layout"] = program.placement.kind == spec::PlacementKind::v ? "v" : "linear";
  json["makespan"] = timeline.total;
  json["longest_stage_span"] = timeline.longest_span();
  json["bubble_rate"] = timeline.bubble_rate();
  json["makespan_bubble_rate"] = timeline.makespan_bubble_rate();
  for (const RankCounts& rank : ranks) {
    json["peak_chunk_stashes"].push_back(rank.chunk_stashes);
    json["peak_pending_w"].push_back(rank.pending_weight);
    json["peak_memory"].push_back(rank.memory);
    json["idle"].push_back(rank.idle);
  }
  for (const RankLayers& rank : layers)
    json["layers"].push_back({{"first_layer", rank.first_layer}, {"num_layers", rank.num_layers}});
  nlohmann::ordered_json lists = nlohmann::ordered_json::array();
  for (const std::vector<schedule::Instruction>& list : program.lists) {
    nlohmann::ordered_json texts = nlohmann::ordered_json::array();
    for (const schedule::Instruction& instruction : list) texts.push_back(schedule::to_text(instruction));
    lists.push_back(std::move(texts));
  }
  json["instructions"] = std::move(lists);
  std::puts(json.dump().c_str());
}

void print_lists(const schedule::Program& program) {
  std::puts("stage, F forward, B backward (I input gradient, W weight gradient), r/s receive/send, micro-batch\n");
  constexpr std::size_t kMostRows = 64, kMostWords = 400;
  for (std::size_t rank = 0; rank < std::min(program.lists.size(), kMostRows); ++rank) {
    std::string line = str_cat("rank ", rank, ":");
    const std::vector<schedule::Instruction>& list = program.lists[rank];
    for (std::size_t i = 0; i < std::min(list.size(), kMostWords); ++i) line += " " + schedule::to_text(list[i]);
    if (list.size() > kMostWords) line += str_cat(" … and ", list.size() - kMostWords, " more");
    std::puts(line.c_str());
  }
  if (program.lists.size() > kMostRows) std::printf("… and %zu more ranks\n", program.lists.size() - kMostRows);
}

void print_text(const std::string& name, const schedule::Program& program, const ReportOptions& options,
                const schedule::Timeline& timeline, const std::vector<RankCounts>& ranks,
                const std::vector<RankLayers>& layers) {
  const spec::StagePlacement& placement = program.placement;
  std::printf("schedule %s, %d ranks, %lld micro-batches per step and data-parallel rank", name.c_str(),
              placement.num_ranks, static_cast<long long>(schedule::num_micro_batches(program)));
  if (placement.num_chunks > 1)
    std::printf(", %d stages per rank in %s placement", placement.num_chunks,
                placement.kind == spec::PlacementKind::v ? "V" : "linear");
  std::puts("\n");
  print_lists(program);
  std::printf("\n  rank  stashes  pending W  memory   idle%s\n", layers.empty() ? "" : "  layers  first layer");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankCounts& r = ranks[rank];
    std::printf("%6zu %8lld %10lld %7.2f %5.1f%%", rank, static_cast<long long>(r.chunk_stashes),
                static_cast<long long>(r.pending_weight), r.memory, 100.0 * r.idle);
    if (!layers.empty())
      std::printf(" %7lld %12lld", static_cast<long long>(layers[rank].num_layers),
                  static_cast<long long>(layers[rank].first_layer));
    std::puts("");
  }
  std::printf(
      "stashes: of one stage and micro-batch, alive at one time; memory: in stashes of a whole rank\n\n"
      "time from left to right%s\n%s",
      options.times_given ? ""
      : layers.empty()    ? ", if F, I and W of a rank take 1 each and messages are free"
                          : ", if F, I and W of a layer take 1 each and messages are free",
      schedule::draw_chart(program, timeline).c_str());
  std::printf("\nmakespan %g, longest span of a rank %g, bubble %.2f%% of it (%.2f%% of the makespan)\n",
              timeline.total, timeline.longest_span(), 100.0 * timeline.bubble_rate(),
              100.0 * timeline.makespan_bubble_rate());
}

}  // namespace

void print_pipeline_report(const std::string& schedule_name, const schedule::Program& passes,
                           const ReportOptions& options, const std::vector<RankLayers>& layers) {
  const schedule::Program complete = schedule::insert_communication(passes);
  schedule::validate(complete);
  const schedule::Program& program = options.with_communication ? complete : passes;
  const schedule::Timeline timeline = schedule::simulate(program, options.durations);
  const std::vector<RankCounts> ranks = count_ranks(passes, timeline, options.kept_after_input_grad);
  if (!options.svg.empty())
    write_file(options.svg, schedule::draw_svg(passes, schedule::simulate(passes, options.durations)));
  if (!options.program_out.empty()) write_file(options.program_out, schedule::to_text(passes));
  if (options.json)
    print_json(schedule_name, program, timeline, ranks, layers);
  else
    print_text(schedule_name, program, options, timeline, ranks, layers);
}

}  // namespace megatron::cli
