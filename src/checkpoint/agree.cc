#include "checkpoint/agree.h"

#include <algorithm>
#include <cstring>

#include "tensor/allocator.h"

namespace megatron::checkpoint {
namespace {

constexpr std::int64_t kMessageWords = 256;

}  // namespace

std::string agreed_failure(comm::Communicator& world, const Failure& failure) {
  const auto allocator = tensor::Allocator::create(Device::cpu);
  Tensor flag = Tensor::empty(*allocator, {1}, DType::int64, MemoryKind::communication);
  // The maximum of size − rank is the lowest rank that failed.
  flag.data<std::int64_t>()[0] = failure.message().empty() ? 0 : world.size() - world.rank();
  const Tensor highest = world.all_reduce(flag, comm::ReduceOp::max, "checkpoint agreement").wait();
  if (highest.data<std::int64_t>()[0] == 0) return {};
  const int root = world.size() - static_cast<int>(highest.data<std::int64_t>()[0]);
  Tensor message = Tensor::zeros(*allocator, {kMessageWords}, DType::int64, MemoryKind::communication);
  const std::size_t capacity = kMessageWords * 8 - 1;
  char* const text = reinterpret_cast<char*>(message.data<std::int64_t>());
  std::memcpy(text, failure.message().data(), std::min(failure.message().size(), capacity));
  const Tensor shared = world.broadcast(message, root, "checkpoint failure").wait();
  const char* const first = reinterpret_cast<const char*>(shared.data<std::int64_t>());
  return str_cat(first, " (rank ", world.members()[static_cast<std::size_t>(root)], ")");
}

void agree(comm::Communicator& world, const Failure& failure) {
  const std::string message = agreed_failure(world, failure);
  if (!message.empty()) throw IoError(message);
}

}  // namespace megatron::checkpoint
