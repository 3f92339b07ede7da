// What the front doors of the kernels share: shape checks, null views, counting of bytes.
#pragma once

#include "kernels/executor.h"
#include "kernels/kernel_span.h"

namespace megatron::kernels {

/// A null view stands for an absent operand; a meta view has a shape but no memory.
inline bool is_null(const tensor::ViewBase& view) { return view.num_dims() == 0; }

/// The 16-bit types: widened when read, computed with in fp32, rounded once to nearest even when written.
inline bool is_floating(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || is_16_bit_float(dtype);
}
/// Both alike, or float32 beside a 16-bit type.
inline bool may_meet(DType a, DType b) {
  return a == b || (a == DType::float32 && is_16_bit_float(b)) || (b == DType::float32 && is_16_bit_float(a));
}

/// fp64 goes to the oracle, everything else to the vector code.
inline bool is_double(const tensor::ViewBase& view) { return view.dtype == DType::float64; }

inline void check_floating(const tensor::ViewBase& view, const char* name) {
  MEGATRON_CHECK(is_floating(view.dtype), name, " is ", dtype_name(view.dtype),
                 ", not float32, float64, bfloat16 or float16");
}
/// For what is kept in fp32 in every run.
inline void check_wide(const tensor::ViewBase& view, const char* name) {
  MEGATRON_CHECK(view.dtype == DType::float32 || view.dtype == DType::float64, name, " is ", dtype_name(view.dtype),
                 ", not float32 or float64");
}
/// `stream` has the dtype of `other`, or is float32 beside a 16-bit one (a residual stream of more precision).
inline void check_stream(const tensor::ViewBase& stream, const char* name, const tensor::ViewBase& other,
                         const char* other_name) {
  MEGATRON_CHECK(stream.dtype == other.dtype || (stream.dtype == DType::float32 && is_16_bit_float(other.dtype)), name,
                 " is ", dtype_name(stream.dtype), ", ", other_name, " is ", dtype_name(other.dtype));
}
inline void check_meet(const tensor::ViewBase& a, const char* name_a, const tensor::ViewBase& b, const char* name_b) {
  MEGATRON_CHECK(may_meet(a.dtype, b.dtype), name_a, " is ", dtype_name(a.dtype), ", ", name_b, " is ",
                 dtype_name(b.dtype));
}

/// `view` has this shape and dtype, and a dense last dim.
inline void check_view(const tensor::ViewBase& view, const Shape& shape, DType dtype, const char* name) {
  MEGATRON_CHECK_EQ(view.shape, shape, name);
  MEGATRON_CHECK(view.dtype == dtype, name, " is ", dtype_name(view.dtype), ", not ", dtype_name(dtype));
  MEGATRON_CHECK(shape[-1] <= 1 || view.strides[-1] == 1, name, ": last stride ", view.strides[-1]);
}

inline void check_matrix(const tensor::ViewBase& view, const char* name) {
  MEGATRON_CHECK_EQ(view.num_dims(), 2, name, " has shape ", view.shape);
  check_floating(view, name);
  MEGATRON_CHECK(view.shape[1] <= 1 || view.strides[1] == 1, name, ": last stride ", view.strides[1]);
}

/// A dense vector of `size` elements.
inline void check_vector(const tensor::ViewBase& view, std::int64_t size, DType dtype, const char* name) {
  check_view(view, {size}, dtype, name);
}

/// A dense view with the dtype and number of elements of `like`.
inline void check_flat(const tensor::ViewBase& view, const tensor::ViewBase& like, const char* name) {
  MEGATRON_CHECK(view.dtype == like.dtype, name, " is ", dtype_name(view.dtype), ", not ", dtype_name(like.dtype));
  MEGATRON_CHECK_EQ(view.numel(), like.numel(), name, " has shape ", view.shape);
  MEGATRON_CHECK(view.is_contiguous(), name, " is not dense");
}

/// The 16-bit copy of fp32 weights p, if there is one.
inline void check_rounded(const TensorView& rounded, const TensorView& p) {
  if (is_null(rounded)) return;
  MEGATRON_CHECK(is_16_bit_float(rounded.dtype) && p.dtype == DType::float32, "rounded is ", dtype_name(rounded.dtype),
                 ", p is ", dtype_name(p.dtype));
  check_flat(rounded, rounded, "rounded");
  MEGATRON_CHECK_EQ(rounded.numel(), p.numel(), "rounded has shape ", rounded.shape);
}

/// Integer operands are plain pointers; they are null on meta only.
inline void check_pointer(const Executor& exec, const void* pointer, std::int64_t count, const char* name) {
  MEGATRON_CHECK(pointer != nullptr || count == 0 || exec.is_meta(), name, " is null");
}

inline void count_bytes(Executor& exec, std::int64_t bytes) { exec.counters().bytes_moved += bytes; }

template <typename... Views>
std::int64_t operand_bytes(const Views&... views) {
  return ((is_null(views) ? 0 : views.bytes()) + ... + 0);
}

/// Adds the sizes of all operands to bytes_moved; an operand that is read and written is named twice.
template <typename... Views>
void count_operands(Executor& exec, const Views&... views) {
  count_bytes(exec, operand_bytes(views...));
}

/// `count` floats of the executor's scratch; null on meta.
inline float* float_scratch(Executor& exec, std::int64_t count) {
  return reinterpret_cast<float*>(exec.scratch(count * dtype_size(DType::float32)));
}

}  // namespace megatron::kernels
