// Repeating a part of a forward pass in backward, for activations that were not kept. It gives the same bits: kernels
// are deterministic, and dropout is a function of place.
#pragma once

#include "nn/pass.h"

namespace megatron::nn {

/// Counts what runs while it lives as recomputed (kernels::WorkCounters).
class RecomputeScope {
 public:
  explicit RecomputeScope(kernels::Executor& exec) : exec_(exec), before_(work()) {}
  ~RecomputeScope() { exec_.counters().recomputed_flops += work() - before_; }
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

 private:
  std::int64_t work() const { return exec_.counters().matmul_flops + exec_.counters().attention_flops; }

  kernels::Executor& exec_;
  std::int64_t before_;
};

/// `pass` as one that keeps a stash, or none.
inline Pass with_stash(const Pass& pass, bool keep) {
  Pass other = pass;
  other.keep_stash = keep;
  return other;
}

}  // namespace megatron::nn
