// MD5 (RFC 1321), piece by piece: names of Megatron-LM's cache files and fingerprints of index arrays. Not for
// security.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace megatron::data {

class Md5 {
 public:
  void add(std::span<const std::byte> bytes);
  /// 32 hexadecimal digits of all that was added; nothing may be added afterwards.
  std::string finish();

 private:
  void block(const std::byte* bytes);

  std::array<std::uint32_t, 4> state_ = {0x67452301U, 0xefcdab89U, 0x98badcfeU, 0x10325476U};
  std::array<std::byte, 64> rest_{};
  std::uint64_t size_ = 0;
};

std::string md5(std::string_view text);

}  // namespace megatron::data
