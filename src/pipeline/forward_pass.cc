#include "pipeline/forward_pass.h"

#include <utility>

namespace megatron::pipeline {

Tensor forward_logits(nn::Pass& pass, model::Model& model, const spec::RunSpec& run, std::int64_t row_begin,
                      std::int64_t row_end, const std::string& label) {
  const mesh::Group& pp = pass.rank.mesh.pp;
  const spec::StagePlacement& placement = model.placement();
  Tensor hidden;  // output of the stage before, where this rank holds that one
  for (int stage = 0; stage < placement.num_stages(); ++stage) {
    if (!model.holds(stage)) continue;
    if (stage > 0 && !model.holds(stage - 1)) {
      hidden = pass.exec.empty({pass.batch.shard_end - pass.batch.shard_begin, run.model.hidden_size},
                               run.numerics.residual_dtype(), MemoryKind::communication);
      hidden = pp.communicator()->receive(std::move(hidden), placement.rank_of(stage - 1), label).wait();
    }
    if (stage + 1 == placement.num_stages()) return model.stage(stage).forward_logits(pass, hidden, row_begin, row_end);
    model::StageStash no_stash;
    hidden = model.stage(stage).forward(pass, hidden, no_stash);
    if (model.holds(stage + 1)) continue;
    pp.communicator()->send(std::exchange(hidden, Tensor()), placement.rank_of(stage + 1), label).wait();
  }
  return Tensor();
}

}  // namespace megatron::pipeline
