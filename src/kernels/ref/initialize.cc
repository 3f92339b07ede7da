#include "kernels/ref/initialize.h"

#include <cmath>

namespace megatron::kernels::ref {

namespace {
std::array<std::uint32_t, 4> words_of(PhiloxKey key, std::int64_t index) {
  const auto quad = static_cast<std::uint64_t>(index / 4);
  return philox4x32(key, {static_cast<std::uint32_t>(quad), static_cast<std::uint32_t>(quad >> 32), 0, 0});
}
}  // namespace

double normal_at(PhiloxKey key, std::int64_t index) {
  const auto words = words_of(key, index);
  const auto pair = static_cast<std::size_t>(index % 4 / 2 * 2);
  const double radius = std::sqrt(-2 * std::log((static_cast<double>(words[pair]) + 1) * 0x1p-32));
  const double angle = 2 * 3.14159265358979323846 * static_cast<double>(uniform_from_bits(words[pair + 1]));
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

float uniform_at(PhiloxKey key, std::int64_t index) {
  return 2 * uniform_from_bits(words_of(key, index)[static_cast<std::size_t>(index % 4)]) - 1;
}

}  // namespace megatron::kernels::ref
