// Runs a model of another program under a layout and holds every number against that program's own: logits, hidden
// states, losses, gradients, a training curve, the weights at its end, greedy tokens.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "interop/huggingface.h"
#include "interop/reference_case.h"
#include "spec/run_spec.h"

namespace megatron::train {

struct Comparison {
  std::string quantity;  // "logits", "hidden.2", "grad.NAME", "generate.0.tokens" …
  double error = 0;      // absolute, relative or counted, as the tolerance is meant; NaN where ours is not finite
  double tolerance = 0;
  bool ok = false;
};

struct VerifyReport {
  std::vector<Comparison> comparisons;
  std::vector<std::string> not_compared;  // quantities that the reference file does not hold
  /// Everything compared was within its tolerance, and something was.
  bool passed() const;
};

/// Puts model, optimizer and batch of the case into `run`, whose layout is complete but for the model: no dropout,
/// constant learning rate.
void describe_verification(spec::RunSpec& run, const spec::ModelSpec& model, const interop::ReferenceCase& reference);

/// Throws ConfigError naming option and number where the samples of the case cannot be spread over the data-parallel
/// ranks, or its sequences do not fit the positions or the sequence-parallel cut. `run` is complete.
void check_verification(const spec::RunSpec& run, const interop::ReferenceCase& reference);

/// `run` is complete and was made by the two functions above. Every process gets the same report.
VerifyReport verify(comm::World& world, const spec::RunSpec& run, const interop::HuggingFaceModel& model,
                    const interop::ReferenceCase& reference);

}  // namespace megatron::train
