// Shapes, and non-owning views that kernels take: a pointer with dtype, sizes and strides. Last stride is always 1.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ostream>

#include "base/check.h"
#include "base/dtype.h"
#include "tensor/device.h"

namespace megatron::tensor {

/// Up to five sizes (or strides), in elements.
class Shape {
 public:
  static constexpr int kMaxDims = 5;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) {
    MEGATRON_CHECK_LE(static_cast<int>(sizes.size()), kMaxDims);
    for (const std::int64_t size : sizes) sizes_[static_cast<std::size_t>(num_dims_++)] = size;
  }

  int num_dims() const { return num_dims_; }
  /// A negative `dim` counts from the back.
  std::int64_t operator[](int dim) const { return sizes_[index(dim)]; }
  std::int64_t& operator[](int dim) { return sizes_[index(dim)]; }
  void push_back(std::int64_t size) {
    MEGATRON_CHECK_LT(num_dims_, kMaxDims);
    sizes_[static_cast<std::size_t>(num_dims_++)] = size;
  }
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (int i = 0; i < num_dims_; ++i) n *= (*this)[i];
    return n;
  }
  bool operator==(const Shape& other) const {
    if (num_dims_ != other.num_dims_) return false;
    for (int i = 0; i < num_dims_; ++i)
      if ((*this)[i] != other[i]) return false;
    return true;
  }
  const std::int64_t* begin() const { return sizes_.data(); }
  const std::int64_t* end() const { return sizes_.data() + num_dims_; }

 private:
  std::size_t index(int dim) const {
    const int d = dim < 0 ? dim + num_dims_ : dim;
    MEGATRON_CHECK(d >= 0 && d < num_dims_, "dim ", dim, " of a shape with ", num_dims_, " dims");
    return static_cast<std::size_t>(d);
  }
  std::array<std::int64_t, kMaxDims> sizes_{};
  int num_dims_ = 0;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);
/// Strides of a dense row-major tensor.
Shape contiguous_strides(const Shape& shape);

/// What both kinds of view share. `pointer` is null for meta tensors.
struct ViewBase {
  void* pointer = nullptr;
  DType dtype = DType::float32;
  Device device = Device::cpu;
  Shape shape;
  Shape strides;

  int num_dims() const { return shape.num_dims(); }
  std::int64_t size(int dim) const { return shape[dim]; }
  std::int64_t stride(int dim) const { return strides[dim]; }
  std::int64_t numel() const { return shape.numel(); }
  std::int64_t bytes() const { return numel() * dtype_size(dtype); }
  bool is_meta() const { return device == Device::meta; }
  bool is_contiguous() const;

 protected:
  template <typename T>
  T* typed() const {
    MEGATRON_CHECK(DTypeOf<T>::value == dtype, "view of ", dtype_name(dtype), " read as ",
                   dtype_name(DTypeOf<T>::value));
    return static_cast<T*>(pointer);
  }
};

/// A view that may only be read.
struct ConstTensorView : ViewBase {
  template <typename T>
  const T* data() const {
    return typed<T>();
  }
  ConstTensorView slice(int dim, std::int64_t begin, std::int64_t end) const;
  ConstTensorView reshape(const Shape& new_shape) const;
};

/// A view that may be written.
struct TensorView : ViewBase {
  template <typename T>
  T* data() const {
    return typed<T>();
  }
  operator ConstTensorView() const {
    ConstTensorView view;
    static_cast<ViewBase&>(view) = *this;
    return view;
  }
  TensorView slice(int dim, std::int64_t begin, std::int64_t end) const;
  TensorView reshape(const Shape& new_shape) const;
};

}  // namespace megatron::tensor
