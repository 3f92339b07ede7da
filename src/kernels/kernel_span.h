// The record of one kernel call: its name, its time and what it counted, where the rank is being recorded.
#pragma once

#include "kernels/executor.h"

namespace megatron::kernels {

/// The three products of a linear layer: x·Wᵀ, dy·W, dyᵀ·x.
constexpr const char* product_name(bool transpose_a, bool transpose_b) {
  if (transpose_b) return transpose_a ? "matmul" : "matmul_forward";
  return transpose_a ? "matmul_wgrad" : "matmul_dgrad";
}

/// Stands at the top of a front door and ends with it. Without a trace it costs a test of a pointer that is always
/// null. FLOPs and bytes are what the front door adds to the counters meanwhile.
class KernelSpan {
 public:
  /// `name` is a literal. `bytes`: compulsory traffic of a kernel that counts FLOPs instead.
  KernelSpan(Executor& exec, const char* name, std::int64_t bytes = 0) : trace_(exec.trace()) {
    if (trace_ != nullptr) [[unlikely]]
      open(exec, name, bytes);
  }
  ~KernelSpan() {
    if (trace_ != nullptr) [[unlikely]]
      close();
  }
  KernelSpan(const KernelSpan&) = delete;
  KernelSpan& operator=(const KernelSpan&) = delete;

 private:
  void open(Executor& exec, const char* name, std::int64_t bytes);
  void close();

  Trace* trace_;
  Executor* exec_ = nullptr;
  WorkCounters before_;
  std::int64_t bytes_ = 0;
};

}  // namespace megatron::kernels
