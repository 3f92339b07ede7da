// Bytes that the ranks of a run put on the wire in one training step, by group and operation, from the description
// alone: exactly what the communicators count (comm/world.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "spec/flat_plan.h"
#include "spec/run_spec.h"

namespace megatron::spec {

/// [group: tp, dp, pp, embedding, model, world][operation: all_reduce, send, …]; entries only for what moves bytes.
using TrafficTable = std::map<std::string, std::map<std::string, std::int64_t>>;

/// Of a rank at (`pipeline_rank`, `data_rank`) in a step of `num_micro_batches` that changes weights; all
/// tensor-parallel ranks are alike. `plan`: that of the pipeline rank with optimizer_shards(run). Not counted: what
/// happens once (start, checkpoints, a schedule that is made again), and evaluation.
TrafficTable step_traffic(const RunSpec& run, const FlatPlan& plan, int pipeline_rank, int data_rank,
                          std::int64_t num_micro_batches);

/// For each entry the larger one.
void take_larger(TrafficTable& table, const TrafficTable& other);

}  // namespace megatron::spec
