#include "tensor/tensor.h"

#include <utility>

namespace megatron::tensor {

Tensor Tensor::on_storage(std::shared_ptr<Storage> storage, std::int64_t offset, const Shape& shape, DType dtype) {
  MEGATRON_CHECK_LE((offset + shape.numel()) * dtype_size(dtype), storage->bytes(), "tensor ", shape,
                    " past its storage");
  Tensor t;
  t.storage_ = std::move(storage);
  t.dtype_ = dtype;
  t.offset_ = offset;
  t.shape_ = shape;
  t.strides_ = contiguous_strides(shape);
  return t;
}

Tensor Tensor::empty(Allocator& allocator, const Shape& shape, DType dtype, MemoryKind kind) {
  return on_storage(allocator.allocate(shape.numel() * dtype_size(dtype), kind), 0, shape, dtype);
}

Tensor Tensor::zeros(Allocator& allocator, const Shape& shape, DType dtype, MemoryKind kind) {
  return on_storage(allocator.allocate_zeroed(shape.numel() * dtype_size(dtype), kind), 0, shape, dtype);
}

ConstTensorView Tensor::view_const() const {
  MEGATRON_CHECK(defined(), "view of an undefined tensor");
  ConstTensorView view;
  view.pointer = storage_->data() == nullptr ? nullptr : storage_->data() + offset_ * dtype_size(dtype_);
  view.dtype = dtype_;
  view.device = storage_->device();
  view.shape = shape_;
  view.strides = strides_;
  return view;
}

TensorView Tensor::view() {
  TensorView view;
  static_cast<ViewBase&>(view) = view_const();
  return view;
}

Tensor Tensor::slice(int dim, std::int64_t begin, std::int64_t end) const {
  MEGATRON_CHECK(0 <= begin && begin <= end && end <= shape_[dim], "slice [", begin, ", ", end, ") of dim ", dim,
                 " of ", shape_);
  Tensor t = *this;
  t.offset_ += begin * strides_[dim];
  t.shape_[dim] = end - begin;
  return t;
}

Tensor Tensor::reshape(const Shape& new_shape) const {
  const ConstTensorView view = view_const().reshape(new_shape);
  Tensor t = *this;
  t.shape_ = view.shape;
  t.strides_ = view.strides;
  return t;
}

}  // namespace megatron::tensor
