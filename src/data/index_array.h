// A long array of indices that takes four bytes an entry while its values allow it; in memory of its own or in a mapped
// file.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mapped_file.h"

namespace megatron::data {

class IndexArray {
 public:
  IndexArray() = default;
  /// `size` zeros, wide enough for values up to `max_value`.
  IndexArray(std::int64_t size, std::int64_t max_value) : size_(size) {
    if (max_value <= std::numeric_limits<std::uint32_t>::max())
      narrow_.resize(static_cast<std::size_t>(size));
    else
      wide_.resize(static_cast<std::size_t>(size));
    is_wide_ = max_value > std::numeric_limits<std::uint32_t>::max();
  }
  /// Entry i is at byte `offset` + i·`stride` of the file: an int64 if `wide`, else a uint32. Read only.
  IndexArray(std::shared_ptr<const MappedFile> file, std::int64_t offset, std::int64_t size, std::int64_t stride,
             bool wide)
      : size_(size), is_wide_(wide), file_(std::move(file)), stride_(stride) {
    const std::int64_t end = size == 0 ? offset : offset + (size - 1) * stride + (wide ? 8 : 4);
    MEGATRON_CHECK_LE(end, file_->size());
    mapped_ = file_->bytes().data() + offset;
  }

  std::int64_t size() const { return size_; }
  bool wide() const { return is_wide_; }
  bool mapped() const { return file_ != nullptr; }
  std::int64_t operator[](std::int64_t i) const {
    if (mapped_ != nullptr) return is_wide_ ? load<std::int64_t>(i) : load<std::uint32_t>(i);
    return is_wide_ ? wide_[static_cast<std::size_t>(i)] : narrow_[static_cast<std::size_t>(i)];
  }
  void set(std::int64_t i, std::int64_t value) {
    if (is_wide_)
      wide_[static_cast<std::size_t>(i)] = value;
    else
      narrow_[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(value);
  }
  void swap(std::int64_t i, std::int64_t j) {
    const auto a = static_cast<std::size_t>(i), b = static_cast<std::size_t>(j);
    if (is_wide_)
      std::swap(wide_[a], wide_[b]);
    else
      std::swap(narrow_[a], narrow_[b]);
  }

 private:
  template <typename T>
  std::int64_t load(std::int64_t i) const {
    T value;
    std::memcpy(&value, mapped_ + i * stride_, sizeof(T));
    return static_cast<std::int64_t>(value);
  }

  std::int64_t size_ = 0;
  bool is_wide_ = false;
  std::vector<std::uint32_t> narrow_;
  std::vector<std::int64_t> wide_;
  std::shared_ptr<const MappedFile> file_;
  const std::byte* mapped_ = nullptr;
  std::int64_t stride_ = 0;
};

}  // namespace megatron::data
