// Every parameter of a model: name, logical shape, how it is cut over the tensor-parallel ranks, and its stages.
#pragma once

#include <string>
#include <vector>

#include "spec/run_spec.h"
#include "spec/sharding.h"

namespace megatron::spec {

struct ParameterRow {
  std::string name;   // Megatron Core's
  std::string cut;    // "rows", "columns", "gate and up rows", "heads", "whole"
  Sharding sharding;  // of tensor-parallel rank 0; unpadded vocabulary
  std::vector<int> stages;
  std::int64_t numel() const { return sharding.numel(); }
};

/// In forward order. `run` must be complete (layers per stage derived).
std::vector<ParameterRow> parameter_table(const RunSpec& run);
/// Those of one virtual stage; `first_layer`: layers of all stages before it.
std::vector<ParameterRow> stage_parameters(const RunSpec& run, int stage, std::int64_t first_layer);

}  // namespace megatron::spec
