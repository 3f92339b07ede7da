// One forward pass of one micro-batch through all virtual stages, without a schedule: inference.
#pragma once

#include <string>

#include "model/model.h"
#include "spec/run_spec.h"

namespace megatron::pipeline {

/// Runs `pass` (which keeps no stash) on every stage that this rank holds, with blocking messages between ranks.
/// Returns the logits of rows [row_begin, row_end) on the ranks of the last stage (Stage::forward_logits), the
/// undefined tensor on all others. Collective over pp and tp. `label` names the messages.
Tensor forward_logits(nn::Pass& pass, model::Model& model, const spec::RunSpec& run, std::int64_t row_begin,
                      std::int64_t row_end, const std::string& label);

}  // namespace megatron::pipeline
