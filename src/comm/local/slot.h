// One collective of thread ranks: the members' keys and buffers, and its work cut into slices that any member may
// claim.
//
// Slices are cut by shape, so results do not depend on who does which. A byte is read once and written once per reader:
// sums go through kernels::tree_reduce in group order (level 0), the rest are copies.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/request.h"

namespace megatron::comm {

class Slot {
 public:
  explicit Slot(int size);

  /// Adds a member's part; the group's mutex is held. Throws the CommError of two keys that differ. Returns true when
  /// all have posted: from then on full() holds and slices can be claimed.
  bool post(int member, const std::vector<int>& global_ranks, const std::string& group, std::int64_t sequence,
            Request& request);
  /// With the group's mutex held: whether `member` has posted.
  bool has(int member) const { return parts_[static_cast<std::size_t>(member)].posted; }

  bool full() const { return full_.load(std::memory_order_acquire); }
  /// All slices are done: nobody reads or writes a member's tensors any more.
  bool done() const { return full() && remaining_.load(std::memory_order_acquire) == 0; }
  /// Does one slice, the member's own first. False when none is left to claim. Sets `finished` when it was the last
  /// one.
  bool work(int member, bool& finished);

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
  struct alignas(64) Claim {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };

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
  std::vector<std::vector<Slice>> slices_;  // by owner
  std::unique_ptr<Claim[]> claims_;
  std::atomic<bool> full_{false};
  std::atomic<std::int64_t> remaining_{0};
};

}  // namespace megatron::comm
