#include "base/rng.h"

namespace megatron {

namespace {
std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}
}  // namespace

PhiloxKey make_philox_key(std::uint64_t seed, RandomPurpose purpose, std::uint64_t layer) {
  const std::uint64_t first = mix64(seed + 0x9E3779B97F4A7C15ULL);
  const std::uint64_t stream = (static_cast<std::uint64_t>(purpose) << 48) ^ layer;
  const std::uint64_t key = mix64(first ^ mix64(stream + 0x9E3779B97F4A7C15ULL));
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

}  // namespace megatron
