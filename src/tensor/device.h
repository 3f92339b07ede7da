// Where the bytes of a tensor are.
#pragma once

#include <cstdint>

namespace megatron::tensor {

/// `meta` tensors have a shape and a size but no memory: kernels check shapes, count work and return.
enum class Device : std::uint8_t { cpu, meta };

}  // namespace megatron::tensor
