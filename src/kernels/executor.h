// What every kernel gets first: the rank's threads, its memory, its counters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/thread_pool.h"
#include "base/trace.h"
#include "tensor/tensor.h"

namespace megatron::kernels {

/// Work done by kernels, counted in the front doors, the same on meta and on real tensors.
struct WorkCounters {
  std::int64_t matmul_flops = 0;      // 2·m·n·k of matrix products
  std::int64_t attention_flops = 0;   // 2·visible pairs·(D + E) per query head forward, twice that backward
  std::int64_t bytes_moved = 0;       // compulsory reads and writes of the other kernels
  std::int64_t recomputed_flops = 0;  // of both kinds above, how many backward spent on repeating forward
};

class Executor {
 public:
  /// `num_threads` ≥ 1: the calling rank thread and num_threads − 1 parked workers.
  Executor(std::shared_ptr<tensor::Allocator> allocator, int num_threads, int spin = 2000);

  tensor::Allocator& allocator() { return *allocator_; }
  int num_threads() const { return pool_.num_threads(); }
  bool is_meta() const { return allocator_->device() == Device::meta; }
  WorkCounters& counters() { return counters_; }
  /// Where kernels record their calls (kernel_span.h); null: nowhere. Borrowed.
  Trace* trace() const { return trace_; }
  void set_trace(Trace* trace) { trace_ = trace; }

  /// Runs body(index, worker) for index in [0, count) on all threads. How work is cut never enters a result's bits;
  /// reductions are cut by shape.
  template <typename Body>
  void parallel_for(std::int64_t count, Body&& body) {
    pool_.parallel_for(count, std::forward<Body>(body));
  }

  /// Dense uninitialised tensor from the rank's allocator.
  Tensor empty(const Shape& shape, DType dtype, MemoryKind kind = MemoryKind::activation) {
    return Tensor::empty(*allocator_, shape, dtype, kind);
  }
  Tensor zeros(const Shape& shape, DType dtype, MemoryKind kind = MemoryKind::activation) {
    return Tensor::zeros(*allocator_, shape, dtype, kind);
  }

  /// Workspace of a kernel body: `bytes` of 64-byte aligned memory, valid until the next call of scratch() on this
  /// executor; grows to the largest request and is kept.
  std::byte* scratch(std::int64_t bytes);

 private:
  std::shared_ptr<tensor::Allocator> allocator_;
  ThreadPool pool_;
  WorkCounters counters_;
  Trace* trace_ = nullptr;
  Tensor scratch_;
};

}  // namespace megatron::kernels
