// Addresses in views whose element type is known at run time only; the vector code reads the type beside the address.
#pragma once

#include <cstddef>

#include "kernels/executor.h"

namespace megatron::kernels::cpu {

/// Element `index` of a view, counted in elements from its start.
inline const void* at_element(const ConstTensorView& view, std::int64_t index) {
  return static_cast<const std::byte*>(view.pointer) + index * dtype_size(view.dtype);
}
inline void* at_element(const TensorView& view, std::int64_t index) {
  return static_cast<std::byte*>(view.pointer) + index * dtype_size(view.dtype);
}
/// Of a view that may be null.
inline void* at_element_or_null(const TensorView& view, std::int64_t index) {
  return view.num_dims() == 0 ? nullptr : at_element(view, index);
}

}  // namespace megatron::kernels::cpu
