#include "tensor/view.h"

namespace megatron::tensor {

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int i = 0; i < shape.num_dims(); ++i) out << (i > 0 ? ", " : "") << shape[i];
  return out << ']';
}

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  std::int64_t stride = 1;
  for (int i = shape.num_dims() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

bool ViewBase::is_contiguous() const {
  std::int64_t expected = 1;
  for (int i = num_dims() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

namespace {
void slice_in_place(ViewBase& view, int dim, std::int64_t begin, std::int64_t end) {
  MEGATRON_CHECK(0 <= begin && begin <= end && end <= view.shape[dim], "slice [", begin, ", ", end, ") of dim ", dim,
                 " of ", view.shape);
  if (view.pointer != nullptr)
    view.pointer = static_cast<std::byte*>(view.pointer) + begin * view.strides[dim] * dtype_size(view.dtype);
  view.shape[dim] = end - begin;
}

// Splits or joins dims; joined dims must be dense among themselves.
void reshape_in_place(ViewBase& view, const Shape& new_shape) {
  MEGATRON_CHECK_EQ(new_shape.numel(), view.numel(), "reshape of ", view.shape, " to ", new_shape);
  if (view.is_contiguous()) {
    view.shape = new_shape;
    view.strides = contiguous_strides(new_shape);
    return;
  }
  // General case: walk both shapes from the back and match groups of equal size.
  Shape strides = new_shape;
  int old_dim = view.num_dims() - 1;
  int new_dim = new_shape.num_dims() - 1;
  while (new_dim >= 0) {
    while (old_dim > 0 && view.shape[old_dim] == 1) --old_dim;
    std::int64_t group = old_dim >= 0 ? view.shape[old_dim] : 1;
    std::int64_t stride = old_dim >= 0 ? view.strides[old_dim] : 1;
    int first = old_dim;
    std::int64_t filled = 1;
    do {
      strides[new_dim] = stride * filled;
      filled *= new_shape[new_dim];
      --new_dim;
      while (filled > group && first > 0) {
        --first;
        MEGATRON_CHECK_EQ(view.strides[first], view.strides[first + 1] * view.shape[first + 1],
                          "reshape of a view that is not dense: ", view.shape, " to ", new_shape);
        group *= view.shape[first];
      }
    } while (new_dim >= 0 && filled < group);
    MEGATRON_CHECK_EQ(filled, group, "reshape of ", view.shape, " to ", new_shape);
    old_dim = first - 1;
  }
  view.shape = new_shape;
  view.strides = strides;
}
}  // namespace

ConstTensorView ConstTensorView::slice(int dim, std::int64_t begin, std::int64_t end) const {
  ConstTensorView view = *this;
  slice_in_place(view, dim, begin, end);
  return view;
}

TensorView TensorView::slice(int dim, std::int64_t begin, std::int64_t end) const {
  TensorView view = *this;
  slice_in_place(view, dim, begin, end);
  return view;
}

ConstTensorView ConstTensorView::reshape(const Shape& new_shape) const {
  ConstTensorView view = *this;
  reshape_in_place(view, new_shape);
  return view;
}

TensorView TensorView::reshape(const Shape& new_shape) const {
  TensorView view = *this;
  reshape_in_place(view, new_shape);
  return view;
}

}  // namespace megatron::tensor
