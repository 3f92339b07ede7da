// Finding all keys that a text begins with: a trie over bytes in one hash table. Immutable once filled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace megatron::tokenizer {

class ByteTrie {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffU;
  static constexpr std::uint32_t kRoot = 0;

  ByteTrie() {
    values_.assign(1, kNone);
    first_.fill(kNone);
  }

  /// Throws ConfigError beyond 2^24 nodes. A key that is added again gets the new value. Keys are not empty.
  void add(std::string_view key, std::uint32_t value);

  /// The node behind `node` along `byte`; kNone: no key goes there.
  std::uint32_t step(std::uint32_t node, unsigned char byte) const {
    if (node == kRoot) return first_[byte];
    if (slots_.empty()) return kNone;
    const std::uint32_t key = node << 8 | byte;
    for (std::size_t slot = home(key);; slot = (slot + 1) & (slots_.size() - 1)) {
      if (slots_[slot].key == key) return slots_[slot].node;
      if (slots_[slot].key == kEmpty) return kNone;
    }
  }
  /// The node behind the root along `text`; kNone: no key begins so.
  std::uint32_t walk(std::string_view text) const;
  /// The value of the key that ends here; kNone: none does.
  std::uint32_t value(std::uint32_t node) const { return values_[node]; }

 private:
  static constexpr std::uint32_t kEmpty = 0xffffffffU;
  static constexpr std::size_t kMostNodes = (std::size_t{1} << 24) - 1;
  struct Slot {
    std::uint32_t key = kEmpty;  // node · 256 + byte
    std::uint32_t node = 0;
  };

  std::size_t home(std::uint32_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> 32) & (slots_.size() - 1);
  }
  std::uint32_t make_step(std::uint32_t node, unsigned char byte);
  void grow();

  std::array<std::uint32_t, 256> first_;  // behind the root
  std::vector<Slot> slots_;               // of the other nodes: a power of two, at most half full
  std::vector<std::uint32_t> values_;
};

}  // namespace megatron::tokenizer
