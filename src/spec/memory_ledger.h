// Bytes in use over time, without memory: who holds how much until when. A block counts from take() until its last
// handle is gone, as a tensor does.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace megatron::spec {

/// What a block counts as: activations (stashed ones as well), or buffers of communication.
enum class HeldKind : std::uint8_t { activations, communication };

class MemoryLedger {
 public:
  class Block {
   public:
    Block(MemoryLedger& ledger, std::int64_t bytes, HeldKind kind) : ledger_(ledger), bytes_(bytes), kind_(kind) {
      ledger_.add(kind_, bytes_);
    }
    ~Block() { ledger_.add(kind_, -bytes_); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    void set_kind(HeldKind kind) {
      ledger_.add(kind_, -bytes_);
      ledger_.add(kind_ = kind, bytes_);
    }

   private:
    MemoryLedger& ledger_;
    std::int64_t bytes_;
    HeldKind kind_;
  };

  /// Handles must be gone before the ledger.
  std::shared_ptr<Block> take(std::int64_t bytes, HeldKind kind = HeldKind::activations) {
    return std::make_shared<Block>(*this, bytes, kind);
  }
  std::int64_t live(HeldKind kind) const { return live_[static_cast<std::size_t>(kind)]; }
  std::int64_t peak(HeldKind kind) const { return peak_[static_cast<std::size_t>(kind)]; }
  /// Peaks count from now on.
  void restart_peaks() { peak_ = live_; }

 private:
  void add(HeldKind kind, std::int64_t bytes) {
    const auto k = static_cast<std::size_t>(kind);
    live_[k] += bytes;
    peak_[k] = std::max(peak_[k], live_[k]);
  }

  std::array<std::int64_t, 2> live_{}, peak_{};
};

using Held = std::shared_ptr<MemoryLedger::Block>;

}  // namespace megatron::spec
