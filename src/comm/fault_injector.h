// The faults of one rank, armed until they strike once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/fault_plan.h"

namespace megatron::comm {

class FaultInjector {
 public:
  FaultInjector(const FaultPlan& plan, int rank);
  bool armed() const { return !faults_.empty(); }
  /// The fault that strikes at the rank's next operation, if any; counts the operation. A fault of kind `nan` waits for
  /// an operation with `has_float_data`.
  std::optional<Fault> next(std::int64_t iteration, bool has_float_data);

 private:
  std::vector<Fault> faults_;
  std::int64_t operation_ = 0;
};

}  // namespace megatron::comm
