// Walks views of any strides as rows of contiguous elements, cut into pieces fixed by the shape.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/executor.h"

namespace megatron::kernels {

/// The rows of one or more views of equal shape. Dims that are dense in every view are joined first.
template <int kViews>
class RowWalk {
 public:
  RowWalk(const Shape& shape, const std::array<Shape, kViews>& strides) {
    // From the back: dims_[0] is the innermost.
    for (int d = shape.num_dims() - 1; d >= 0; --d) {
      if (shape[d] == 1) continue;
      bool dense = num_dims_ > 0;
      for (std::size_t v = 0; v < kViews && dense; ++v)
        dense = strides[v][d] == dims_[at(num_dims_ - 1)].stride[v] * dims_[at(num_dims_ - 1)].size;
      if (dense) {
        dims_[at(num_dims_ - 1)].size *= shape[d];
      } else {
        Dim& dim = dims_[at(num_dims_++)];
        dim.size = shape[d];
        for (std::size_t v = 0; v < kViews; ++v) dim.stride[v] = strides[v][d];
      }
    }
    if (num_dims_ == 0) {
      dims_[0].size = shape.numel();  // 1, or 0 when the shape is empty
      num_dims_ = 1;
    }
    length_ = dims_[0].size;
    for (int d = 1; d < num_dims_; ++d) rows_ *= dims_[at(d)].size;
  }

  std::int64_t num_rows() const { return rows_; }
  std::int64_t length() const { return length_; }

  /// Element offsets of the start of row `row` in each view.
  std::array<std::int64_t, kViews> offsets(std::int64_t row) const {
    std::array<std::int64_t, kViews> result{};
    for (int d = 1; d < num_dims_; ++d) {
      const std::int64_t index = row % dims_[at(d)].size;
      row /= dims_[at(d)].size;
      for (std::size_t v = 0; v < kViews; ++v) result[v] += index * dims_[at(d)].stride[v];
    }
    return result;
  }

  /// body(offsets, count) for pieces of rows, on all threads.
  template <typename Body>
  void for_each_piece(Executor& exec, const Body& body) const {
    if (length_ == 0 || rows_ == 0) return;
    const std::int64_t pieces = (length_ + kPiece - 1) / kPiece;
    const std::int64_t group = std::max<std::int64_t>(1, kPiece / length_);
    exec.parallel_for((rows_ + group - 1) / group * pieces, [&](std::int64_t task, int) {
      const std::int64_t begin = task % pieces * kPiece;
      const std::int64_t first = task / pieces * group;
      for (std::int64_t row = first; row < std::min(rows_, first + group); ++row) {
        auto at_piece = offsets(row);
        for (auto& offset : at_piece) offset += begin;
        body(at_piece, std::min(kPiece, length_ - begin));
      }
    });
  }

 private:
  static constexpr std::int64_t kPiece = 16384;
  struct Dim {
    std::int64_t size = 1;
    std::array<std::int64_t, kViews> stride{};
  };
  static std::size_t at(int d) { return static_cast<std::size_t>(d); }

  std::array<Dim, Shape::kMaxDims> dims_{};
  int num_dims_ = 0;
  std::int64_t rows_ = 1;
  std::int64_t length_ = 0;
};

}  // namespace megatron::kernels
