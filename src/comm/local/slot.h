// One collective of thread ranks: the members' keys and buffers, and its work cut into slices that any member may
// claim.
//
// Slices are cut by shape, so results do not depend on who does which. A byte is read once and written once per reader:
// sums go through kernels::tree_reduce in group order (level 0), the rest are copies. Where the results together are
// larger than caches are, copies store past them. (Sums of all_reduce do not: their lines have just been read.)
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/request.h"
#include "kernels/tree_sum.h"

namespace megatron::comm {

/// How copies of that size in all are stored: results larger than caches are not found there anyway.
constexpr kernels::Stores stores_for(std::int64_t bytes) {
  return bytes >= 32 * 1024 * 1024 ? kernels::Stores::streaming : kernels::Stores::cached;
}

class Slot {
 public:
  explicit Slot(int size);

  /// Adds a member's part; the group's mutex is held. Throws the CommError of two keys that differ. Returns true when
  /// all have posted: that member calls fill() then.
  bool post(int member, const std::vector<int>& global_ranks, const std::string& group, std::int64_t sequence,
            Request& request);
  /// Cuts the work; from then on full() holds and slices can be claimed. `request`: the last member's.
  void fill(const std::vector<int>& global_ranks, const std::string& group, Request& request);
  /// Called once by each member that has seen done() and will not touch the slot again.
  void release() { released_.fetch_add(1, std::memory_order_release); }
  bool is_released() const { return released_.load(std::memory_order_acquire) == size_; }
  /// Makes a released slot new.
  void reset();
  /// With the group's mutex held: whether `member` has posted.
  bool has(int member) const { return parts_[static_cast<std::size_t>(member)].posted; }

  bool full() const { return full_.load(std::memory_order_seq_cst); }
  /// All slices are done: nobody reads or writes a member's tensors any more.
  bool done() const { return full() && remaining_.load(std::memory_order_seq_cst) == 0; }
  /// Does one slice, the member's own first. False when none is left to claim. Sets `finished` when it was the last
  /// one.
  bool work(int member, bool& finished);
  /// For whoever has made it full: so little to do that handing it out would take longer.
  bool is_small() const { return moved_bytes_ <= kSmallBytes; }
  std::int64_t num_slices() const { return static_cast<std::int64_t>(slices_.size()); }

  /// A member that is about to sleep until the slot is full or done says so first; who makes it full or done asks
  /// afterwards.
  void set_waiting(int member) { claim(member).waiting.store(true, std::memory_order_seq_cst); }
  /// Whether `member` has said so since the slot was made new; it stays true after the member has woken. Any thread.
  bool is_waiting(int member) const {
    return claims_[static_cast<std::size_t>(member)].waiting.load(std::memory_order_seq_cst);
  }

 private:
  struct Part {
    bool posted = false;
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::vector<std::int64_t> rows, receive_rows;
  };
  struct Slice {
    std::int64_t begin = 0, bytes = 0;  // in the source's input
    std::int64_t to = 0;                // in the destination's output
    int source = -1;                    // −1: the sum over all
    int destination = -1;               // −1: all
  };
  /// The slices of one owner, and whether it waits.
  struct alignas(64) Claim {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
    std::atomic<bool> waiting{false};
  };
  static constexpr std::int64_t kSmallBytes = 32 * 1024;

  Claim& claim(int member) { return claims_[static_cast<std::size_t>(member)]; }

  void cut(Request& request);
  void cut_all_reduce(std::int64_t bytes);
  void cut_reduce_scatter(const std::vector<std::int64_t>& rows, std::int64_t row_bytes);
  void cut_copies(const Request& request);
  void add(int owner, Slice range);
  void check_rows(const std::vector<int>& global_ranks, const std::string& group) const;
  void run(const Slice& slice) const;
  void reduce(const Slice& slice) const;

  int size_;
  int arrived_ = 0;
  int first_ = -1;
  Key key_;
  std::vector<Part> parts_;
  std::vector<Slice> slices_;  // owner after owner
  std::unique_ptr<Claim[]> claims_;
  std::int64_t moved_bytes_ = 0;  // that are read
  kernels::Stores stores_ = kernels::Stores::cached;
  std::atomic<bool> full_{false};
  std::atomic<std::int64_t> remaining_{0};
  std::atomic<int> released_{0};
};

}  // namespace megatron::comm
