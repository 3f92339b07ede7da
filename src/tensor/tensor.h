// A shared handle on memory with a shape: storage, dtype, offset, sizes, strides. No maths, no operators.
// Whoever allocates a tensor may write it until it is returned, stashed or posted; then it is frozen.
#pragma once

#include <memory>

#include "tensor/allocator.h"
#include "tensor/view.h"

namespace megatron::tensor {

class Tensor {
 public:
  /// The undefined tensor.
  Tensor() = default;
  /// A dense, uninitialised tensor.
  static Tensor empty(Allocator& allocator, const Shape& shape, DType dtype, MemoryKind kind);
  /// A dense tensor of zero bytes. Memory that is new from the system is not touched.
  static Tensor zeros(Allocator& allocator, const Shape& shape, DType dtype, MemoryKind kind);
  /// A dense tensor on `storage`, starting `offset` elements into it.
  static Tensor on_storage(std::shared_ptr<Storage> storage, std::int64_t offset, const Shape& shape, DType dtype);

  bool defined() const { return storage_ != nullptr; }
  DType dtype() const { return dtype_; }
  Device device() const { return storage_->device(); }
  bool is_meta() const { return device() == Device::meta; }
  const Shape& shape() const { return shape_; }
  const Shape& strides() const { return strides_; }
  int num_dims() const { return shape_.num_dims(); }
  std::int64_t size(int dim) const { return shape_[dim]; }
  std::int64_t numel() const { return shape_.numel(); }
  std::int64_t bytes() const { return numel() * dtype_size(dtype_); }
  bool is_contiguous() const { return view_const().is_contiguous(); }
  const std::shared_ptr<Storage>& storage() const { return storage_; }
  /// First element, in elements from the start of the storage.
  std::int64_t offset() const { return offset_; }
  /// True if no other tensor shares the storage.
  bool unique() const { return storage_.use_count() == 1; }

  /// The part [begin, end) of `dim`; shares the storage.
  Tensor slice(int dim, std::int64_t begin, std::int64_t end) const;
  /// The same elements in another shape; shares the storage. Throws if that needs a copy.
  Tensor reshape(const Shape& new_shape) const;
  /// The same elements in one dim.
  Tensor flat() const { return reshape({numel()}); }

  TensorView view();
  ConstTensorView view() const { return view_const(); }
  ConstTensorView view_const() const;
  operator TensorView() { return view(); }
  operator ConstTensorView() const { return view_const(); }

  template <typename T>
  T* data() {
    return view().data<T>();
  }
  template <typename T>
  const T* data() const {
    return view_const().data<T>();
  }

  void set_kind(MemoryKind kind) { storage_->set_kind(kind); }
  void reset() { *this = Tensor(); }

 private:
  std::shared_ptr<Storage> storage_;
  DType dtype_ = DType::float32;
  std::int64_t offset_ = 0;
  Shape shape_;
  Shape strides_;
};

}  // namespace megatron::tensor

namespace megatron {
using tensor::ConstTensorView;
using tensor::Device;
using tensor::MemoryKind;
using tensor::Shape;
using tensor::Tensor;
using tensor::TensorView;
}  // namespace megatron
