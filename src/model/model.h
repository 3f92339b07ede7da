// What one rank holds of the model: its virtual pipeline stages, in chunk order.
#pragma once

#include <memory>
#include <vector>

#include "model/stage.h"
#include "spec/stage_placement.h"

namespace megatron::model {

class Model {
 public:
  /// chunks[c] is virtual stage placement.stage_of(pipeline_rank, c).
  Model(const spec::StagePlacement& placement, int pipeline_rank, std::vector<std::unique_ptr<Stage>> chunks);

  int num_chunks() const { return static_cast<int>(chunks_.size()); }
  Stage& chunk(int index) { return *chunks_.at(static_cast<std::size_t>(index)); }
  const Stage& chunk(int index) const { return *chunks_.at(static_cast<std::size_t>(index)); }
  /// A virtual stage that this rank holds; throws Error for any other.
  Stage& stage(int virtual_stage);
  const spec::StagePlacement& placement() const { return placement_; }
  bool holds(int virtual_stage) const { return placement_.rank_of(virtual_stage) == pipeline_rank_; }

  /// Of all chunks, in forward order. Stable addresses.
  const std::vector<nn::Parameter*>& parameters() const { return parameters_; }

 private:
  spec::StagePlacement placement_;
  int pipeline_rank_;
  std::vector<std::unique_ptr<Stage>> chunks_;
  std::vector<nn::Parameter*> parameters_;
};

}  // namespace megatron::model
