// XXH3 (64 bits) over bytes that come in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace megatron::checkpoint {

class Checksum {
 public:
  Checksum();
  ~Checksum();
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const;
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::uint64_t checksum_of(std::span<const std::byte> bytes);
/// Sixteen hexadecimal digits.
std::string checksum_text(std::uint64_t value);

}  // namespace megatron::checkpoint
