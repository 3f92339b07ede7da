#include "train/startup.h"

#include <map>
#include <sstream>

#include "base/units.h"
#include "kernels/initialize.h"
#include "train/machine.h"
#include "train/state_io.h"
#include "train/step_summary.h"

namespace megatron::train {
namespace {

constexpr std::size_t kMaxRankLines = 16;

struct RankRecord {
  int tp = 0, pp = 0, dp = 0, threads = 0;
  std::int64_t first_layer = 0, num_layers = 0, stage_parameters = 0;
};

std::string to_text(const RankRecord& r) {
  return str_cat(r.tp, " ", r.pp, " ", r.dp, " ", r.threads, " ", r.first_layer, " ", r.num_layers, " ",
                 r.stage_parameters);
}

RankRecord from_text(const std::string& text) {
  RankRecord r;
  std::istringstream in(text);
  in >> r.tp >> r.pp >> r.dp >> r.threads >> r.first_layer >> r.num_layers >> r.stage_parameters;
  return r;
}

std::string axis_text(const char* name, int size) { return size == 1 ? "" : str_cat(" · ", name, " ", size); }

std::string layer_text(const RankRecord& r) {
  if (r.num_layers == 0) return "no layers";
  if (r.num_layers == 1) return str_cat("layer ", r.first_layer);
  return str_cat("layers ", r.first_layer, " to ", r.first_layer + r.num_layers - 1);
}

}  // namespace

std::vector<std::string> describe_layout(RankParts& parts) {
  const mesh::Mesh& mesh = parts.mesh();
  const spec::ParallelSpec& parallel = parts.run().parallel;
  RankRecord mine{mesh.tp.rank(),
                  mesh.pp.rank(),
                  mesh.dp.rank(),
                  parts.exec().num_threads(),
                  parts.stage().first_layer(),
                  parts.stage().num_layers(),
                  parts.stage_parameters()};
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
    lines.push_back(str_cat("  stage ", stage, ": ", layer_text(record), ", ", record.stage_parameters, " parameters"));
  lines.push_back(str_cat("model: ", parts.num_parameters(), " parameters in ", parts.run().model.num_layers,
                          " layers, vocabulary ", parts.run().model.vocab_size, " (padded to ",
                          parts.run().model.padded_vocab_size, ")"));
  return lines;
}

void claim_memory(RankParts& parts) {
  for (nn::Parameter* parameter : parts.stage().parameters())
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
