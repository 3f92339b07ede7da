// The evaluations of a training run: of the validation data between steps, of validation and test data at its end.
#pragma once

#include <string>

#include "comm/world.h"
#include "train/assemble.h"
#include "train/listener.h"
#include "train/state_io.h"

namespace megatron::train {

class Evaluations {
 public:
  /// All must outlive it; `listener` may be null and hears every result.
  Evaluations(RankParts& parts, comm::RankContext& context, const Process& process, RunListener* listener)
      : parts_(parts), context_(context), process_(process), listener_(listener) {}

  /// All validation data: one set, or each of several on its own. Counts its samples in `position`. Returns the signal
  /// by which all ranks ended it, or 0. Collective.
  int validate(RunPosition& position, bool at_end);
  /// Validation, then test data.
  int at_end(RunPosition& position);

 private:
  int evaluate_split(const data::Dataset* dataset, const char* split, bool at_end, const std::string& set,
                     RunPosition& position);

  RankParts& parts_;
  comm::RankContext& context_;
  const Process& process_;
  RunListener* listener_;
};

}  // namespace megatron::train
