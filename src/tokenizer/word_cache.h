// Ids of short words that were seen, shared by threads without locks. A word is written once and never replaced; when
// the few places where it may stand are taken it is not kept. At most 4 MiB; the ids do not depend on what is kept.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace megatron::tokenizer {

class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 16;  // of a word
  static constexpr std::size_t kMaxIds = 3;

  /// A word as two numbers: its bytes, zeros behind them. Its length (and kind) is kept apart.
  struct Key {
    std::uint64_t low = 0, high = 0;
    std::uint32_t length = 0;
  };
  static Key key_of(std::string_view word) {
    Key key;
    key.length = static_cast<std::uint32_t>(word.size());
    if (word.size() >= 8) {
      std::memcpy(&key.low, word.data(), 8);
      std::memcpy(&key.high, word.data() + word.size() - 8, 8);  // overlaps: length tells words apart
    } else if (word.size() >= 4) {
      std::uint32_t a = 0, b = 0;
      std::memcpy(&a, word.data(), 4);
      std::memcpy(&b, word.data() + word.size() - 4, 4);
      key.low = a | std::uint64_t{b} << 32;
    } else if (!word.empty()) {
      const auto byte = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(word[i])}; };
      key.low = byte(0) | byte(word.size() / 2) << 8 | byte(word.size() - 1) << 16;
    }
    return key;
  }

  /// Appends the ids of `word` to `ids`: those it was seen with or, the first time, what make(word, ids) appends.
  /// `kind` keeps words apart whose ids are made in two ways; below 8.
  template <typename Make>
  void append(std::string_view word, std::uint32_t kind, std::vector<std::int64_t>& ids, const Make& make) {
    if (word.empty() || word.size() > kMaxBytes) return make(word, ids);
    Key key = key_of(word);
    key.length |= kind << 5;
    if (const auto known = find(key); !known.empty()) {
      ids.insert(ids.end(), known.begin(), known.end());
      return;
    }
    const std::size_t before = ids.size();
    make(word, ids);
    const std::size_t count = ids.size() - before;
    if (count == 0 || count > kMaxIds) return;
    std::array<std::uint32_t, kMaxIds> made{};
    for (std::size_t i = 0; i < count; ++i) made[i] = static_cast<std::uint32_t>(ids[before + i]);
    insert(key, std::span(made).first(count));
  }

  WordCache() : slots_(std::make_unique<Slot[]>(kSlots)) {}

  /// The ids of a word; empty: not kept.
  std::span<const std::uint32_t> find(const Key& key) const {
    const std::size_t place = home(key);
    for (std::size_t i = 0; i < kPlaces; ++i) {
      const Slot& slot = slots_[place ^ i];
      const std::uint32_t state = slot.state.load(std::memory_order_acquire);
      if (state == 0) return {};
      if (state >> 8 == key.length && slot.low == key.low && slot.high == key.high && (state & 0xff) <= kMaxIds)
        return {slot.ids.data(), state & 0xff};
    }
    return {};
  }

  void insert(const Key& key, std::span<const std::uint32_t> ids) {
    const std::size_t place = home(key);
    for (std::size_t i = 0; i < kPlaces; ++i) {
      Slot& slot = slots_[place ^ i];
      std::uint32_t state = 0;
      // Another thread may be writing: leave it alone.
      if (!slot.state.compare_exchange_strong(state, kWriting, std::memory_order_acquire)) continue;
      slot.low = key.low;
      slot.high = key.high;
      std::copy(ids.begin(), ids.end(), slot.ids.begin());
      slot.state.store(key.length << 8 | static_cast<std::uint32_t>(ids.size()), std::memory_order_release);
      return;
    }
  }

 private:
  static constexpr std::size_t kSlots = std::size_t{1} << 17;
  static constexpr std::size_t kPlaces = 4;
  static constexpr std::uint32_t kWriting = 0xff;  // length 0: no word has this state

  struct alignas(32) Slot {
    std::atomic<std::uint32_t> state{0};  // length · 256 + number of ids; 0: free
    std::array<std::uint32_t, kMaxIds> ids;
    std::uint64_t low, high;
  };

  static std::size_t home(const Key& key) {
    std::uint64_t hash = (key.low ^ (key.high * 0x9E3779B97F4A7C15ULL) ^ key.length) * 0xD6E8FEB86659FD93ULL;
    hash ^= hash >> 32;
    return static_cast<std::size_t>(hash * 0xD6E8FEB86659FD93ULL >> 40) & (kSlots - 1);
  }

  std::unique_ptr<Slot[]> slots_;
};

}  // namespace megatron::tokenizer
