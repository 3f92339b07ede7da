#include "data/random_state.h"

#include "base/check.h"

namespace megatron::data {

RandomState::RandomState(std::uint64_t seed) {
  if (seed > 0xffffffffULL) throw ConfigError(str_cat("--seed ", seed, ": must be in [0, 4294967295]"));
  engine_.seed(static_cast<std::uint32_t>(seed));
}

std::uint64_t RandomState::bounded(std::uint64_t max) {
  std::uint64_t mask = max;
  for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
  std::uint64_t value = 0;
  do {
    value = engine_();
    if (max > 0xffffffffULL) value = (value << 32) | engine_();
    value &= mask;
  } while (value > max);
  return value;
}

}  // namespace megatron::data
