// One value for each micro-batch and virtual stage of a program.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/instruction.h"

namespace megatron::schedule {

template <typename T>
class PassTable {
 public:
  PassTable(const spec::StagePlacement& placement, std::int64_t num_micro_batches, T initial = T())
      : num_micro_batches_(num_micro_batches),
        values_(static_cast<std::size_t>(placement.num_stages() * num_micro_batches), initial) {}

  T& at(int stage, std::int64_t micro_batch) {
    return values_[static_cast<std::size_t>(stage * num_micro_batches_ + micro_batch)];
  }
  T& at(const Instruction& instruction) { return at(instruction.stage, instruction.micro_batch); }

 private:
  std::int64_t num_micro_batches_;
  std::vector<T> values_;
};

}  // namespace megatron::schedule
