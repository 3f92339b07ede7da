#include "checkpoint/checksum.h"

#include <xxhash.h>

#include <new>

namespace megatron::checkpoint {

struct Checksum::State {
  XXH3_state_t* xxh3 = XXH3_createState();
  State() {
    if (xxh3 == nullptr) throw std::bad_alloc();
  }
  ~State() { XXH3_freeState(xxh3); }
};

Checksum::Checksum() : state_(std::make_unique<State>()) { reset(); }
Checksum::~Checksum() = default;

void Checksum::add(std::span<const std::byte> bytes) { XXH3_64bits_update(state_->xxh3, bytes.data(), bytes.size()); }
std::uint64_t Checksum::value() const { return XXH3_64bits_digest(state_->xxh3); }
void Checksum::reset() { XXH3_64bits_reset(state_->xxh3); }

std::uint64_t checksum_of(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string checksum_text(std::uint64_t value) {
  std::string text(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) text[static_cast<std::size_t>(i)] = "0123456789abcdef"[value & 15];
  return text;
}

}  // namespace megatron::checkpoint
