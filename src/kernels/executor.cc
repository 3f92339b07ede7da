#include "kernels/executor.h"

#include <algorithm>
#include <utility>

namespace megatron::kernels {

Executor::Executor(std::shared_ptr<tensor::Allocator> allocator, int num_threads, int spin)
    : allocator_(std::move(allocator)), pool_(num_threads, spin) {}

std::byte* Executor::scratch(std::int64_t bytes) {
  if (!scratch_.defined() || scratch_.bytes() < bytes) {
    const std::int64_t grown = std::max(bytes, scratch_.defined() ? 2 * scratch_.bytes() : std::int64_t{1} << 16);
    scratch_.reset();
    scratch_ = Tensor::empty(*allocator_, {grown}, DType::uint8, MemoryKind::scratch);
  }
  return static_cast<std::byte*>(scratch_.view().pointer);
}

}  // namespace megatron::kernels
