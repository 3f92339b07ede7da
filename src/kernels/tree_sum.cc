#include "kernels/tree_sum.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/tree_sum.h"

namespace megatron::kernels {

namespace {
constexpr std::int64_t kPiece = 256;  // elements that are folded at a time; partial sums stay in L1
constexpr std::size_t kLevels = 32;

template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

template <typename T>
T combine(ReduceOp op, T a, T b) {
  // A NaN wins over every number, so that max and min cannot hide it.
  if (op == ReduceOp::max) return a >= b || is_nan(a) ? a : b;
  if (op == ReduceOp::min) return a <= b || is_nan(a) ? a : b;
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
      if constexpr (std::is_same_v<T, float>) return cpu::add_floats(a, b, out, count);
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
  const auto join_last_two = [&](std::size_t alive) {
    T* to = partial[alive - 2].data();
    combine_piece(op, level[alive - 2], level[alive - 1], to, count);
    level[alive - 2] = to;
    return alive - 1;
  };
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    level[depth++] = static_cast<const T*>(inputs[r]) + begin;
    for (std::size_t ones = r; (ones & 1) != 0; ones >>= 1) depth = join_last_two(depth);
  }
  while (depth > 1) depth = join_last_two(depth);
  if (level[0] != out) std::copy_n(level[0], count, out);
}

template <typename T>
void reduce(ReduceOp op, std::span<const void* const> inputs, std::span<void* const> outputs, std::int64_t count,
            Stores stores) {
  T* first = static_cast<T*>(outputs[0]);
  if (inputs.size() == 2 && outputs.size() == 1 && stores == Stores::cached) {
    combine_piece(op, static_cast<const T*>(inputs[0]), static_cast<const T*>(inputs[1]), first, count);
    return;
  }
  alignas(64) std::array<T, kPiece> sum;
  for (std::int64_t begin = 0; begin < count; begin += kPiece) {
    const std::int64_t piece = std::min(kPiece, count - begin);
    T* to = stores == Stores::cached ? first + begin : sum.data();
    reduce_piece(op, inputs, begin, piece, to);
    for (void* output : outputs)
      if (static_cast<T*>(output) + begin != to)
        copy_bytes(to, static_cast<T*>(output) + begin, piece * static_cast<std::int64_t>(sizeof(T)), stores);
  }
}

// 16-bit inputs: the same tree over the widened pieces, rounded once at its root. `out` gets the 16-bit results.
void reduce_half_piece(ReduceOp op, DType dtype, std::span<const void* const> inputs, std::int64_t begin,
                       std::int64_t count, void* out) {
  std::array<std::array<float, kPiece>, kLevels> partial;
  std::size_t depth = 0;
  const auto join_last_two = [&] {
    --depth;
    combine_piece(op, partial[depth - 1].data(), partial[depth].data(), partial[depth - 1].data(), count);
  };
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    cpu::widen_halves(dtype, static_cast<const std::uint16_t*>(inputs[r]) + begin, partial[depth++].data(), count);
    for (std::size_t ones = r; (ones & 1) != 0; ones >>= 1) join_last_two();
  }
  while (depth > 1) join_last_two();
  cpu::narrow_halves(dtype, partial[0].data(), out, count);
}

void reduce_halves(ReduceOp op, DType dtype, std::span<const void* const> inputs, std::span<void* const> outputs,
                   std::int64_t count, Stores stores) {
  constexpr std::int64_t kPairPiece = 2048;
  const bool pair = op == ReduceOp::sum && inputs.size() == 2;
  const std::int64_t step = pair ? kPairPiece : kPiece;
  auto* first = static_cast<std::uint16_t*>(outputs[0]);
  alignas(64) std::array<std::uint16_t, kPairPiece> sum;
  for (std::int64_t begin = 0; begin < count; begin += step) {
    const std::int64_t piece = std::min(step, count - begin);
    std::uint16_t* to = stores == Stores::cached ? first + begin : sum.data();
    if (pair)
      cpu::add_halves(dtype, static_cast<const std::uint16_t*>(inputs[0]) + begin,
                      static_cast<const std::uint16_t*>(inputs[1]) + begin, to, piece);
    else
      reduce_half_piece(op, dtype, inputs, begin, piece, to);
    for (void* output : outputs)
      if (static_cast<std::uint16_t*>(output) + begin != to)
        copy_bytes(to, static_cast<std::uint16_t*>(output) + begin, piece * dtype_size(dtype), stores);
  }
}

// The sum of two ranks, which is most of what is ever asked, in one loop.
void add_two(std::span<const void* const> inputs, std::span<void* const> outputs, std::int64_t count, Stores stores) {
  const float *a = static_cast<const float*>(inputs[0]), *b = static_cast<const float*>(inputs[1]);
  auto* first = static_cast<float*>(outputs[0]);
  auto* second = outputs.size() == 2 ? static_cast<float*>(outputs[1]) : nullptr;
  if (stores == Stores::streaming)
    cpu::stream_sum(a, b, first, second, count);
  else if (second != nullptr)
    cpu::add_floats_twice(a, b, first, second, count);
  else
    cpu::add_floats(a, b, first, count);
}
}  // namespace

void tree_reduce(ReduceOp op, DType dtype, std::span<const void* const> inputs, std::span<void* const> outputs,
                 std::int64_t count, Stores stores) noexcept {
  if (inputs.empty() || count == 0) return;
  switch (dtype) {
    case DType::float32:
      if (op == ReduceOp::sum && inputs.size() == 2 && outputs.size() <= 2)
        return add_two(inputs, outputs, count, stores);
      return reduce<float>(op, inputs, outputs, count, stores);
    case DType::float64:
      return reduce<double>(op, inputs, outputs, count, stores);
    case DType::int64:
      return reduce<std::int64_t>(op, inputs, outputs, count, stores);
    case DType::int32:
      return reduce<std::int32_t>(op, inputs, outputs, count, stores);
    case DType::bfloat16:
    case DType::float16:
      return reduce_halves(op, dtype, inputs, outputs, count, stores);
    default:
      MEGATRON_CHECK(false, "reduction of ", dtype_name(dtype));  // a wrong call: terminates with the message
  }
}

void tree_reduce(ReduceOp op, DType dtype, std::span<const void* const> inputs, void* out,
                 std::int64_t count) noexcept {
  tree_reduce(op, dtype, inputs, std::span<void* const>(&out, 1), count, Stores::cached);
}

void copy_bytes(const void* from, void* to, std::int64_t bytes, Stores stores) noexcept {
  if (bytes == 0) return;
  if (stores == Stores::streaming)
    cpu::stream_copy(static_cast<const std::byte*>(from), static_cast<std::byte*>(to), bytes);
  else
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace megatron::kernels
