#include "kernels/tree_sum.h"

#include <algorithm>
#include <array>
#include <type_traits>

namespace megatron::kernels {

namespace {
constexpr std::int64_t kPiece = 128;  // elements that are folded at a time; partial sums stay in L1
constexpr std::size_t kLevels = 32;

template <typename T>
T combine(ReduceOp op, T a, T b) {
  // A NaN wins over every number, so that max and min cannot hide it.
  if (op == ReduceOp::max) return a >= b || a != a ? a : b;
  if (op == ReduceOp::min) return a <= b || a != a ? a : b;
  if constexpr (std::is_integral_v<T>) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  } else {
    return a + b;
  }
}

template <typename T>
void combine_piece(ReduceOp op, const T* a, const T* b, T* out, std::int64_t count) {
  switch (op) {
    case ReduceOp::sum:
      for (std::int64_t i = 0; i < count; ++i) out[i] = combine(ReduceOp::sum, a[i], b[i]);
      break;
    case ReduceOp::max:
      for (std::int64_t i = 0; i < count; ++i) out[i] = combine(ReduceOp::max, a[i], b[i]);
      break;
    case ReduceOp::min:
      for (std::int64_t i = 0; i < count; ++i) out[i] = combine(ReduceOp::min, a[i], b[i]);
      break;
  }
}

// Inputs are pushed in order; after input r, as many partial trees are joined as r has trailing one bits. What is left
// at the end are the full subtrees of the left-full tree, joined from the right.
template <typename T>
void reduce_piece(ReduceOp op, std::span<const void* const> inputs, std::int64_t begin, std::int64_t count, T* out) {
  std::array<std::array<T, kPiece>, kLevels> partial;
  std::array<const T*, kLevels> level{};  // a leaf stays where it is until it is joined
  std::size_t depth = 0;
  const auto join = [&] {
    T* to = partial[depth - 2].data();
    combine_piece(op, level[depth - 2], level[depth - 1], to, count);
    level[--depth - 1] = to;
  };
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    level[depth++] = static_cast<const T*>(inputs[r]) + begin;
    for (std::size_t ones = r; (ones & 1) != 0; ones >>= 1) join();
  }
  while (depth > 1) join();
  if (level[0] != out) std::copy_n(level[0], count, out);
}

template <typename T>
void reduce(ReduceOp op, std::span<const void* const> inputs, void* out, std::int64_t count) {
  T* to = static_cast<T*>(out);
  if (inputs.size() == 2) {
    combine_piece(op, static_cast<const T*>(inputs[0]), static_cast<const T*>(inputs[1]), to, count);
    return;
  }
  for (std::int64_t begin = 0; begin < count; begin += kPiece)
    reduce_piece(op, inputs, begin, std::min(kPiece, count - begin), to + begin);
}
}  // namespace

void tree_reduce(ReduceOp op, DType dtype, std::span<const void* const> inputs, void* out,
                 std::int64_t count) noexcept {
  if (inputs.empty()) return;
  switch (dtype) {
    case DType::float32:
      return reduce<float>(op, inputs, out, count);
    case DType::float64:
      return reduce<double>(op, inputs, out, count);
    case DType::int64:
      return reduce<std::int64_t>(op, inputs, out, count);
    case DType::int32:
      return reduce<std::int32_t>(op, inputs, out, count);
    default:
      MEGATRON_CHECK(false, "reduction of ", dtype_name(dtype));  // a wrong call: terminates with the message
  }
}

}  // namespace megatron::kernels
