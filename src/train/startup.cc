#include "train/startup.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>

#include "base/text.h"
#include "base/units.h"
#include "kernels/initialize.h"
#include "schedule/run_costs.h"
#include "spec/batch_schedule.h"
#include "train/machine.h"
#include "train/state_io.h"
#include "train/step_summary.h"

namespace megatron::train {
namespace {

constexpr std::size_t kMaxRankLines = 16;

struct RankRecord {
  int tp = 0, pp = 0, dp = 0, threads = 0;
  std::int64_t stage_parameters = 0;
};

std::string to_text(const RankRecord& r) {
  return str_cat(r.tp, " ", r.pp, " ", r.dp, " ", r.threads, " ", r.stage_parameters);
}

RankRecord from_text(const std::string& text) {
  RankRecord r;
  std::istringstream in(text);
  in >> r.tp >> r.pp >> r.dp >> r.threads >> r.stage_parameters;
  return r;
}

std::string axis_text(const char* name, int size) { return size == 1 ? "" : str_cat(" · ", name, " ", size); }

std::string layer_text(std::int64_t first, std::int64_t count) {
  if (count == 0) return "no layers";
  if (count == 1) return str_cat("layer ", first);
  return str_cat("layers ", first, " to ", first + count - 1);
}

/// "stage 1: layers 2 to 3", or "pipeline rank 1: stage 1: layers 2 to 3, stage 5: layer 10" with several chunks.
std::string layers_of_rank(const spec::ParallelSpec& parallel, int pipeline_rank) {
  const spec::StagePlacement placement = parallel.placement();
  std::string text = placement.num_chunks > 1 ? str_cat("pipeline rank ", pipeline_rank, ": ") : "";
  for (int chunk = 0; chunk < placement.num_chunks; ++chunk) {
    const int stage = placement.stage_of(pipeline_rank, chunk);
    const auto begin = parallel.layers_per_stage.begin();
    text += str_cat(chunk > 0 ? ", " : "", "stage ", stage, ": ",
                    layer_text(std::accumulate(begin, begin + stage, std::int64_t{0}), begin[stage]));
  }
  return text;
}

}  // namespace

std::vector<std::string> describe_layout(RankParts& parts) {
  const mesh::Mesh& mesh = parts.mesh();
  const spec::ParallelSpec& parallel = parts.run().parallel;
  RankRecord mine{mesh.tp.rank(), mesh.pp.rank(), mesh.dp.rank(), parts.exec().num_threads(), parts.stage_parameters()};
  std::vector<RankRecord> records;
  for (const std::string& text : gather_texts(parts.rank(), to_text(mine), "startup.layout"))
    records.push_back(from_text(text));

  std::vector<std::string> lines;
  lines.push_back(str_cat("layout: ", mesh.world_size, mesh.world_size == 1 ? " rank" : " ranks",
                          axis_text("tensor parallel", mesh.tp.size()),
                          parallel.sequence_parallel ? " with sequence parallelism" : "",
                          axis_text("pipeline parallel", mesh.pp.size()), axis_text("data parallel", mesh.dp.size()),
                          " · ", mine.threads, mine.threads == 1 ? " thread" : " threads", " per rank"));
  if (records.size() > 1 && records.size() <= kMaxRankLines)
    for (std::size_t r = 0; r < records.size(); ++r)
      lines.push_back(str_cat("  rank ", r, ": tp ", records[r].tp, ", pp ", records[r].pp, ", dp ", records[r].dp));
  std::map<int, RankRecord> stages;
  for (const RankRecord& record : records) stages.emplace(record.pp, record);
  for (const auto& [stage, record] : stages)
    lines.push_back(str_cat("  ", layers_of_rank(parallel, stage), ", ", record.stage_parameters, " parameters"));
  lines.push_back(str_cat("model: ", parts.num_parameters(), " parameters in ", parts.run().model.num_layers,
                          " layers, vocabulary ", parts.run().model.vocab_size, " (padded to ",
                          parts.run().model.padded_vocab_size, ")"));
  return lines;
}

void check_memory(const spec::RunSpec& run) {
  const std::int64_t has = total_memory_bytes() + total_swap_bytes();
  if (has == 0 || uses_mpi(run) || !spec::trains(run.batch)) return;
  const std::vector<spec::RankMemory> ranks = schedule::run_costs(run).memory;
  double needed = 0.0;
  for (const spec::RankMemory& rank : ranks)
    for (const std::int64_t bytes :
         {rank.parameters, rank.main_parameters, rank.gradients, rank.optimizer, rank.activations, rank.communication})
      needed += static_cast<double>(bytes);
  if (needed <= static_cast<double>(has)) return;
  throw Error(str_cat("out of memory: the run needs ", format_bytes(static_cast<std::int64_t>(std::min(needed, 9e18))),
                      " (", counted(std::ssize(ranks), "rank"), "; megatron validate shows which), this machine has ",
                      format_bytes(has)));
}

void claim_memory(RankParts& parts) {
  for (const optim::OwnedPart& part : parts.grad_buffer().owned())
    kernels::claim_pages(parts.exec(), Tensor(part.gradient));
  for (nn::Parameter* parameter : parts.model().parameters())
    if (parameter->main_grad.defined()) kernels::claim_pages(parts.exec(), parameter->main_grad);
  for (optim::OptimizerState& state : parts.optimizer().states()) kernels::claim_pages(parts.exec(), state.tensor);
}

std::vector<std::string> describe_resources(RankParts& parts) {
  std::vector<std::string> lines;
  const tensor::MemoryTracker& tracker = parts.exec().allocator().tracker();
  std::string memory = "memory of rank 0 before the first step:";
  for (const MemoryKind kind : {MemoryKind::parameter, MemoryKind::gradient, MemoryKind::optimizer})
    memory += str_cat(" ", tensor::memory_kind_name(kind), " ", format_bytes(tracker.live(kind)));
  lines.push_back(memory + str_cat("; this machine has ", format_bytes(available_memory_bytes()), " available"));
  if (parts.run().checkpoint.save.has_value()) {
    const std::int64_t free = free_disk_bytes(*parts.run().checkpoint.save);
    lines.push_back(str_cat("checkpoints: ", format_bytes(checkpoint_bytes(parts)), " each to ",
                            *parts.run().checkpoint.save, free < 0 ? "" : str_cat(", ", format_bytes(free), " free")));
  }
  return lines;
}

}  // namespace megatron::train
