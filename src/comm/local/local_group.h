// A group of thread ranks: its open collectives, its mailboxes, and each member's channel to them.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/abort.h"
#include "comm/kept_tensors.h"
#include "comm/local/slot.h"
#include "comm/parker.h"
#include "comm/request.h"

namespace megatron::comm {

/// What the thread ranks of one world share.
struct LocalShared {
  LocalShared(int world_size, int spin_in);
  /// Wakes every rank that sleeps, whatever for: each looks again at what it waits for and at `abort`. Any thread.
  void wake_all();
  Parker& parker(int rank) { return parkers[static_cast<std::size_t>(rank)]; }
  /// Called by the rank's own thread whenever it posts.
  void note_core(int rank);
  /// How long `rank` may look before it sleeps while it waits for others: not at all on the core that one of `members`
  /// was last seen on, which could not run meanwhile.
  int spin_for(int rank, const std::vector<int>& members) const;

  std::vector<Parker> parkers;
  std::vector<KeptTensors> kept;  // each used by its rank's thread alone
  struct alignas(64) Core {
    std::atomic<int> index{-1};
  };
  std::vector<Core> cores;                        // where each rank was when it last posted
  std::unique_ptr<std::atomic<bool>[]> finished;  // ranks whose function has returned
  std::atomic<int> num_finished{0};
  AbortState abort;
  int spin;
  int helpers;  // members that are woken to share one operation: as many as there are other cores
};

/// A message under way. The first three are fixed at the start; the rest belongs to the mailbox's mutex.
struct Message {
  Key key;
  std::int64_t bytes = 0;
  std::int64_t sequence = 0;
  const std::byte* data = nullptr;       // the sender's tensor, or `staging`
  std::unique_ptr<std::byte[]> staging;  // a copy, once the sender wanted its tensor back
  std::atomic<bool> taken{false};
};

struct PostedReceive {
  Key key;
  std::byte* into = nullptr;
  std::atomic<bool> done{false};
};

/// Messages from one rank to another, in order. Copies are made with the mutex held: only two ranks ever meet here.
struct Mailbox {
  std::mutex mutex;
  std::deque<std::shared_ptr<Message>> messages;
  std::deque<std::shared_ptr<PostedReceive>> receives;
};

class LocalGroup {
 public:
  LocalGroup(LocalShared& shared, std::string name, std::vector<int> members);
  std::unique_ptr<Channel> channel(int rank_in_group);

 private:
  friend class LocalChannel;
  friend class CollectiveOperation;
  friend class ReceiveOperation;
  int size() const { return static_cast<int>(members_.size()); }
  int global(int member) const { return members_[static_cast<std::size_t>(member)]; }
  /// Held for a few hundred nanoseconds only, so it is worth trying again before sleeping.
  std::unique_lock<std::mutex> lock();
  /// With the mutex held: the slot of an operation, which its first member makes and its last one takes away.
  std::shared_ptr<Slot> open(std::int64_t sequence);
  void close(std::int64_t sequence);
  std::shared_ptr<Slot> new_slot();
  /// After `slot` has become full by `member`: wakes as many of those who wait for it as can help.
  void wake_helpers(const Slot& slot, int member);
  /// After `slot` is done: wakes all who wait for it.
  void wake_waiting(const Slot& slot, int member);
  Mailbox& mailbox(int from, int to) { return mailboxes_[static_cast<std::size_t>(from * size() + to)]; }
  /// Throws if a member that has not posted never will, its function having returned.
  void check_missing(const Slot& slot, int member, const Key& key);

  LocalShared& shared_;
  std::string name_;
  std::vector<int> members_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<Slot>> open_;  // not yet posted by all (others: null); from operation first_open_ on
  std::int64_t first_open_ = 0;
  std::vector<std::shared_ptr<Slot>> slots_;  // all there are, in turn; those released by every member serve again
  std::size_t next_slot_ = 0;
  std::vector<Mailbox> mailboxes_;
};

}  // namespace megatron::comm
