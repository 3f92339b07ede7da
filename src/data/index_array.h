// A long array of indices that takes four bytes an entry while its values allow it.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

namespace megatron::data {

class IndexArray {
 public:
  IndexArray() = default;
  /// `size` zeros, wide enough for values up to `max_value`.
  IndexArray(std::int64_t size, std::int64_t max_value) {
    if (max_value <= std::numeric_limits<std::uint32_t>::max())
      values_ = std::vector<std::uint32_t>(static_cast<std::size_t>(size));
    else
      values_ = std::vector<std::int64_t>(static_cast<std::size_t>(size));
  }

  std::int64_t size() const {
    return std::visit([](const auto& v) { return static_cast<std::int64_t>(v.size()); }, values_);
  }
  bool wide() const { return values_.index() == 1; }
  std::int64_t operator[](std::int64_t i) const {
    return std::visit([i](const auto& v) { return static_cast<std::int64_t>(v[static_cast<std::size_t>(i)]); },
                      values_);
  }
  void set(std::int64_t i, std::int64_t value) {
    if (auto* narrow = std::get_if<std::vector<std::uint32_t>>(&values_))
      (*narrow)[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(value);
    else
      std::get<1>(values_)[static_cast<std::size_t>(i)] = value;
  }
  void swap(std::int64_t i, std::int64_t j) {
    std::visit([i, j](auto& v) { std::swap(v[static_cast<std::size_t>(i)], v[static_cast<std::size_t>(j)]); }, values_);
  }

 private:
  std::variant<std::vector<std::uint32_t>, std::vector<std::int64_t>> values_;
};

}  // namespace megatron::data
