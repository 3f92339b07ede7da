// One call of each kind of operation on a whole world, for tests that make one of them fail.
#pragma once

#include <string>
#include <vector>

#include "comm/world.h"
#include "tensor/tensor.h"

namespace megatron::comm {

inline const std::vector<std::string>& operation_kinds() {
  static const std::vector<std::string> kinds = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                                 "broadcast",  "message",        "barrier"};
  return kinds;
}

/// Every rank of `group` takes part. Returns the tensor that came out (undefined for a barrier). In a "message" each
/// rank sends to the next and receives from the one before.
inline Tensor run_operation(const std::string& kind, Communicator& group, tensor::Allocator& allocator) {
  const std::int64_t n = group.size();
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(n), 2);
  const auto make = [&](std::int64_t count) {
    Tensor t = Tensor::zeros(allocator, {count, 3}, DType::float32, MemoryKind::communication);
    for (std::int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = 1.0F;
    return t;
  };
  if (kind == "all_reduce") return group.all_reduce(make(8), ReduceOp::sum, kind).wait();
  if (kind == "reduce_scatter") return group.reduce_scatter(make(2 * n), rows, make(2), kind).wait();
  if (kind == "all_gather") return group.all_gather(make(2), rows, make(2 * n), kind).wait();
  if (kind == "all_to_all") return group.all_to_all(make(2 * n), rows, rows, make(2 * n), kind).wait();
  if (kind == "broadcast") return group.broadcast(make(4), 0, kind).wait();
  if (kind == "message") {
    const int next = (group.rank() + 1) % group.size(), previous = (group.rank() + group.size() - 1) % group.size();
    auto sent = group.send(make(4), next, kind);
    Tensor got = group.receive(make(4), previous, kind).wait();
    sent.wait();
    return got;
  }
  MEGATRON_CHECK(kind == "barrier", kind);
  group.barrier(kind);
  return Tensor();
}

}  // namespace megatron::comm
