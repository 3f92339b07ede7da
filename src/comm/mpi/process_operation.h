// Operations between processes: what is sent to whom, what comes from whom, and the sums, as a machine of small steps.
//
// Phase 1: every member tells every other its key, with the data that the other needs: inside the note up to
// kInlineBytes, else apart under a tag that the note names. all_reduce beyond kInlineBytes: member q gets segment q of
// all, adds it by the canonical tree (level 0, the bits of the local world) and in phase 2 gives the sum to all:
// 2·(n−1)/n of the bytes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/mpi/transport.h"
#include "comm/mpi/wire.h"
#include "comm/request.h"

namespace megatron::comm {

constexpr std::int64_t kInlineBytes = 2048;

/// A group as its operations need it; the same for all operations of one channel.
struct ProcessGroup {
  std::string name;
  std::vector<int> members;  // global ranks
  int me = 0;                // place of this process
  std::uint64_t id = 0;
  int size() const { return static_cast<int>(members.size()); }
  int global(int member) const { return members[static_cast<std::size_t>(member)]; }
};

/// Tickets and tags on a Transport, and scratch memory that is used again. For the communication thread alone.
class Wire {
 public:
  /// `max_bytes`: longer data go in several pieces.
  Wire(Transport& transport, std::int64_t max_bytes)
      : transport_(transport), max_bytes_(max_bytes), next_tag_(static_cast<std::size_t>(transport.size()), 0) {}

  Transport& transport() { return transport_; }
  /// Two tags for one operation with process `to`: the result and the next.
  int new_tags(int to);
  void send_note(int to, const Note& note);
  void send(int to, int tag, const std::byte* data, std::int64_t bytes, std::vector<Transport::Ticket>& tickets);
  void receive(int from, int tag, std::byte* data, std::int64_t bytes, std::vector<Transport::Ticket>& tickets);
  /// Removes what is done; true if anything was.
  bool test(std::vector<Transport::Ticket>& tickets);
  /// Frees notes that have been sent.
  bool sweep_notes();
  bool notes_sent() const { return notes_.empty(); }

  std::unique_ptr<std::byte[]> take_scratch(std::int64_t bytes);
  void give_scratch(std::unique_ptr<std::byte[]> block, std::int64_t bytes);

 private:
  struct SentNote {
    std::unique_ptr<std::vector<std::byte>> bytes;
    Transport::Ticket ticket;
  };
  Transport& transport_;
  std::int64_t max_bytes_;
  std::vector<int> next_tag_;
  std::vector<SentNote> notes_;
  std::vector<std::pair<std::int64_t, std::unique_ptr<std::byte[]>>> scratch_;
};

/// Made by the rank's thread, driven by the communication thread, watched by both through done().
class ProcessOperation {
 public:
  ProcessOperation(std::shared_ptr<const ProcessGroup> group, std::int64_t sequence, Request& request);
  virtual ~ProcessOperation() = default;

  const ProcessGroup& group() const { return *group_; }
  std::int64_t sequence() const { return sequence_; }
  OperationKind kind() const { return kind_; }
  const Key& key() const { return key_; }
  int peer() const { return peer_; }
  bool done() const { return done_.load(std::memory_order_acquire); }

  // For the communication thread. They throw CommError.
  virtual void start(Wire& wire) = 0;
  virtual void on_note(Wire& wire, int member, const Note& note) = 0;
  /// Does what can be done without waiting; true if anything was done.
  virtual bool step(Wire& wire) = 0;
  /// Whether the note of `member` is still to come.
  virtual bool misses(int member) const = 0;

 protected:
  void finish() { done_.store(true, std::memory_order_release); }

  std::shared_ptr<const ProcessGroup> group_;
  std::int64_t sequence_;
  OperationKind kind_;
  Key key_;
  int peer_;

 private:
  std::atomic<bool> done_{false};
};

std::shared_ptr<ProcessOperation> make_process_operation(std::shared_ptr<const ProcessGroup> group,
                                                         std::int64_t sequence, Request& request);

}  // namespace megatron::comm
