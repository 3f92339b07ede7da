#include "train/run_measure.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "comm/request.h"
#include "train/machine.h"

namespace megatron::train {
namespace {

constexpr std::array kGroups = {"tp", "dp", "pp", "embedding", "model", "world"};
constexpr std::array kOperations = {comm::OperationKind::all_reduce, comm::OperationKind::reduce_scatter,
                                    comm::OperationKind::all_gather, comm::OperationKind::all_to_all,
                                    comm::OperationKind::broadcast,  comm::OperationKind::send};

std::int64_t entry(const comm::TrafficCounters& counters, const char* group, const char* operation) {
  const auto of_group = counters.bytes.find(group);
  if (of_group == counters.bytes.end()) return 0;
  const auto found = of_group->second.find(operation);
  return found == of_group->second.end() ? 0 : found->second;
}

/// Names as `megatron validate --json` has them, in its order.
metrics::MemoryByKind peaks(const tensor::MemoryTracker& tracker) {
  return {{"parameters", tracker.peak(MemoryKind::parameter)},
          {"main_parameters", tracker.peak(MemoryKind::main_parameter)},
          {"gradients", tracker.peak(MemoryKind::gradient)},
          {"optimizer", tracker.peak(MemoryKind::optimizer)},
          {"activations", tracker.peak_of_passes()},
          {"packed", 0},
          {"communication", tracker.peak(MemoryKind::communication)}};
}

void reduce(RankParts& parts, std::vector<std::int64_t>& values, comm::ReduceOp op, const char* label) {
  if (parts.mesh().world.trivial()) return;
  Tensor words = parts.exec().empty({std::ssize(values)}, DType::int64, MemoryKind::communication);
  std::copy(values.begin(), values.end(), words.data<std::int64_t>());
  words = parts.mesh().world.all_reduce(std::move(words), label, op);
  std::copy_n(std::as_const(words).data<std::int64_t>(), values.size(), values.begin());
}

}  // namespace

RunMeasure::RunMeasure(RankParts& parts, comm::RankContext& context) : parts_(parts), context_(context) {
  parts_.exec().allocator().tracker().restart_peaks();
}

void RunMeasure::begin_step() {
  before_ = context_.traffic();
  work_before_ = parts_.exec().counters();
}

void RunMeasure::pause() { paused_ = context_.traffic(); }

void RunMeasure::resume() {
  for (const auto& [group, operations] : context_.traffic().bytes)
    for (const auto& [operation, bytes] : operations)
      before_.bytes[group][operation] += bytes - entry(paused_, group.c_str(), operation.c_str());
}

void RunMeasure::end_step(const pipeline::StepOutput& output, std::int64_t num_micro_batches, bool counts) {
  const kernels::WorkCounters& work = parts_.exec().counters();
  const std::int64_t recomputed = work.recomputed_flops - work_before_.recomputed_flops;
  recomputed_flops_ += recomputed;
  flops_ += work.matmul_flops - work_before_.matmul_flops + work.attention_flops - work_before_.attention_flops;
  peak_chunk_stashes_ = std::max(peak_chunk_stashes_, output.peak_chunk_stashes);
  if (!counts || num_micro_batches < largest_step_) return;
  largest_step_ = num_micro_batches;
  of_step_ = context_.traffic();
  for (auto& [group, operations] : of_step_.bytes)
    for (auto& [operation, bytes] : operations) bytes -= entry(before_, group.c_str(), operation.c_str());
}

metrics::RunFigures RunMeasure::collect() const {
  metrics::RunFigures figures;
  figures.peak_bytes = peaks(parts_.exec().allocator().tracker());
  std::vector<std::int64_t> most = {peak_resident_bytes(), peak_chunk_stashes_};
  for (const auto& [kind, bytes] : figures.peak_bytes) most.push_back(bytes);
  for (const char* group : kGroups)
    for (const comm::OperationKind kind : kOperations)
      most.push_back(entry(of_step_, group, comm::operation_name(kind)));
  std::vector<std::int64_t> sums = {flops_ - recomputed_flops_, recomputed_flops_};
  reduce(parts_, most, comm::ReduceOp::max, "run_figures");
  reduce(parts_, sums, comm::ReduceOp::sum, "run_flops");

  auto next = most.begin();
  figures.peak_rss_bytes = *next++;
  figures.peak_chunk_stashes = *next++;
  for (auto& [kind, bytes] : figures.peak_bytes) bytes = *next++;
  for (const char* group : kGroups)
    for (const comm::OperationKind kind : kOperations)
      if (const std::int64_t bytes = *next++; bytes > 0)
        figures.communication_bytes_per_step[group][comm::operation_name(kind)] = bytes;
  figures.model_flops = sums[0];
  figures.recomputed_flops = sums[1];
  return figures;
}

}  // namespace megatron::train
