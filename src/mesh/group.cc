#include "mesh/group.h"

#include <cstring>
#include <utility>

namespace megatron::mesh {
namespace {

/// [rows, …] → [n·rows, …]
Shape gathered_shape(const Shape& shape, int n) {
  Shape out = shape;
  out[0] *= n;
  return out;
}

std::int64_t total_bytes(const std::vector<Tensor>& inputs) {
  std::int64_t bytes = 0;
  for (const Tensor& input : inputs) {
    MEGATRON_CHECK(input.is_contiguous() && input.num_dims() >= 1, "all_gather_coalesced takes dense tensors");
    bytes += input.bytes();
  }
  return bytes;
}

std::byte* bytes_of(Tensor& tensor) { return static_cast<std::byte*>(tensor.view().pointer); }
const std::byte* bytes_of(const Tensor& tensor) { return static_cast<const std::byte*>(tensor.view_const().pointer); }

}  // namespace

Group::Group(std::shared_ptr<comm::Communicator> communicator) : communicator_(std::move(communicator)) {}

comm::Pending<Tensor> Group::all_reduce_async(Tensor inout, std::string_view label, comm::ReduceOp op) const {
  if (trivial()) return comm::Pending<Tensor>(std::move(inout));
  return communicator_->all_reduce(std::move(inout), op, label);
}

Tensor Group::all_reduce(Tensor inout, std::string_view label, comm::ReduceOp op) const {
  return all_reduce_async(std::move(inout), label, op).wait();
}

void Group::broadcast_from_first_rank(Tensor inout, std::string_view label) const {
  if (!trivial()) communicator_->broadcast(std::move(inout), 0, label).wait();
}

std::vector<Tensor> Group::all_gather_coalesced(tensor::Allocator& allocator, const std::vector<Tensor>& inputs,
                                                std::string_view label) const {
  if (trivial() || inputs.empty()) return inputs;
  const std::int64_t bytes = total_bytes(inputs);
  const int n = size();
  Tensor packed = Tensor::empty(allocator, {bytes}, DType::uint8, MemoryKind::communication);
  Tensor gathered = Tensor::empty(allocator, {n * bytes}, DType::uint8, MemoryKind::communication);
  const bool real = !packed.is_meta();
  std::int64_t offset = 0;
  for (const Tensor& input : inputs) {
    if (real && input.bytes() > 0)
      std::memcpy(bytes_of(packed) + offset, bytes_of(input), static_cast<std::size_t>(input.bytes()));
    offset += input.bytes();
  }
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(n), bytes);
  gathered = communicator_->all_gather(std::move(packed), rows, std::move(gathered), label).wait();
  std::vector<Tensor> outputs;
  offset = 0;
  for (const Tensor& input : inputs) {
    Tensor output =
        Tensor::empty(allocator, gathered_shape(input.shape(), n), input.dtype(), MemoryKind::communication);
    const std::int64_t part = input.bytes();
    for (int r = 0; real && part > 0 && r < n; ++r)
      std::memcpy(bytes_of(output) + r * part, bytes_of(gathered) + r * bytes + offset, static_cast<std::size_t>(part));
    offset += part;
    outputs.push_back(std::move(output));
  }
  return outputs;
}

void Group::barrier(std::string_view label) const {
  if (!trivial()) communicator_->barrier(label);
}

}  // namespace megatron::mesh
