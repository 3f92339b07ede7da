// Byte-pair encoding over ids: which pairs merge into which id, and in which order (Sennrich et al. 2016).
// Ids are 32-bit. Merging picks the pair of lowest rank, the leftmost among equals, until no pair is left; a piece of n
// ids takes at most n log n. Objects are immutable and shared by threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace megatron::tokenizer {

/// left + right become `merged`.
struct BpeMerge {
  std::uint32_t left = 0, right = 0, merged = 0;
  friend bool operator==(const BpeMerge&, const BpeMerge&) = default;
};

class BpeMerges {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffU;

  /// What the order of merging is: the places in the list, or the ids made (several pairs may make the same one).
  enum class Rank { place, merged_id };

  /// A pair given twice keeps the first rank. Ids are below 2^31.
  explicit BpeMerges(std::span<const BpeMerge> merges, Rank rank = Rank::place);
  /// The rank of each merge; several may share one.
  BpeMerges(std::span<const BpeMerge> merges, std::span<const std::uint32_t> ranks);

  /// Merges ids[0, count) in place; returns how many are left.
  std::size_t merge(std::uint32_t* ids, std::size_t count) const;

  struct Found {
    std::uint32_t rank = kNone, merged = 0;
  };
  /// rank = kNone: the pair does not merge.
  Found find(std::uint32_t left, std::uint32_t right) const {
    const std::uint64_t key = (std::uint64_t{left} << 32) | right;
    for (std::size_t slot = home(key);; slot = (slot + 1) & mask_) {
      const Slot& s = slots_[slot];
      if (s.key == key) return {s.rank, s.merged};
      if (s.key == kEmpty) return {};
    }
  }

 private:
  explicit BpeMerges(std::size_t count);
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Slot {
    std::uint64_t key = kEmpty;
    std::uint32_t rank = kNone, merged = 0;
  };

  std::size_t home(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> shift_) & mask_;
  }
  void insert(const BpeMerge& merge, std::uint32_t rank);
  std::size_t merge_short(std::uint32_t* ids, std::size_t count) const;
  std::size_t merge_long(std::uint32_t* ids, std::size_t count) const;

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace megatron::tokenizer
