#include "model/model.h"

#include <utility>

#include "base/check.h"

namespace megatron::model {

Model::Model(const spec::StagePlacement& placement, int pipeline_rank, std::vector<std::unique_ptr<Stage>> chunks)
    : placement_(placement), pipeline_rank_(pipeline_rank), chunks_(std::move(chunks)) {
  MEGATRON_CHECK_EQ(num_chunks(), placement.num_chunks, "chunks of a rank");
  for (const std::unique_ptr<Stage>& chunk : chunks_)
    parameters_.insert(parameters_.end(), chunk->parameters().begin(), chunk->parameters().end());
}

Stage& Model::stage(int virtual_stage) {
  MEGATRON_CHECK(virtual_stage >= 0 && virtual_stage < placement_.num_stages() && holds(virtual_stage), "stage ",
                 virtual_stage, " is not on pipeline rank ", pipeline_rank_);
  return chunk(placement_.chunk_of(virtual_stage));
}

}  // namespace megatron::model
