// A transport between threads that stand for processes, so that the protocol of the MPI world is tested (and watched by
// the thread sanitizer) without MPI. Long data are handed over only when the receiver is there, as in real networks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "base/check.h"
#include "comm/mpi/transport.h"

namespace megatron::comm {

class LoopbackHub {
 public:
  explicit LoopbackHub(int size) : notes_(static_cast<std::size_t>(size)) {}
  int size() const { return static_cast<int>(notes_.size()); }

 private:
  friend class LoopbackTransport;
  struct Transfer {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::int64_t bytes = 0;
    std::vector<std::byte> copy;
    bool done = false;
  };
  using Way = std::tuple<int, int, int>;  // sender, receiver, tag
  struct Queue {
    std::deque<std::shared_ptr<Transfer>> sent, wanted;
  };

  void match(Queue& queue) {
    while (!queue.sent.empty() && !queue.wanted.empty()) {
      Transfer& sent = *queue.sent.front();
      Transfer& wanted = *queue.wanted.front();
      MEGATRON_CHECK_EQ(sent.bytes, wanted.bytes, "loopback transfer");
      std::memcpy(wanted.to, sent.from, static_cast<std::size_t>(sent.bytes));
      sent.done = wanted.done = true;
      queue.sent.pop_front();
      queue.wanted.pop_front();
    }
  }

  // Like MPI_Finalize: memory that others may still read lives until all are here. Who ends without closing is not
  // waited for.
  void leave(bool wait) {
    std::unique_lock lock(mutex_);
    if (++left_ == size()) all_left_.notify_all();
    if (wait) all_left_.wait(lock, [this] { return left_ == size(); });
  }

  std::mutex mutex_;
  std::condition_variable all_left_;
  int left_ = 0;
  std::vector<std::deque<std::pair<int, std::vector<std::byte>>>> notes_;
  std::map<Way, Queue> queues_;
};

class LoopbackTransport : public Transport {
 public:
  LoopbackTransport(std::shared_ptr<LoopbackHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  int ranks_on_this_machine() const override { return hub_->size(); }

  Ticket send(int to, int tag, const void* data, std::int64_t bytes) override {
    const std::lock_guard lock(hub_->mutex_);
    auto transfer = std::make_shared<LoopbackHub::Transfer>();
    transfer->from = static_cast<const std::byte*>(data);
    transfer->bytes = bytes;
    if (bytes <= 4096) {
      transfer->copy.assign(transfer->from, transfer->from + bytes);
      transfer->from = transfer->copy.data();
      transfer->done = true;
    }
    auto& queue = hub_->queues_[{rank_, to, tag}];
    queue.sent.push_back(transfer);
    hub_->match(queue);
    return add(transfer);
  }

  Ticket receive(int from, int tag, void* data, std::int64_t bytes) override {
    const std::lock_guard lock(hub_->mutex_);
    auto transfer = std::make_shared<LoopbackHub::Transfer>();
    transfer->to = static_cast<std::byte*>(data);
    transfer->bytes = bytes;
    auto& queue = hub_->queues_[{from, rank_, tag}];
    queue.wanted.push_back(transfer);
    hub_->match(queue);
    return add(transfer);
  }

  bool test(Ticket ticket) override {
    if (ticket == 0) return true;  // a note: copied when sent
    const std::lock_guard lock(hub_->mutex_);
    const auto it = transfers_.find(ticket);
    MEGATRON_CHECK(it != transfers_.end(), "ticket ", ticket);
    if (!it->second->done) return false;
    transfers_.erase(it);
    return true;
  }

  Ticket send_note(int to, const std::vector<std::byte>& note) override {
    const std::lock_guard lock(hub_->mutex_);
    hub_->notes_[static_cast<std::size_t>(to)].emplace_back(rank_, note);
    return 0;
  }

  bool next_note(int& from, std::vector<std::byte>& note) override {
    const std::lock_guard lock(hub_->mutex_);
    auto& notes = hub_->notes_[static_cast<std::size_t>(rank_)];
    if (notes.empty()) return false;
    from = notes.front().first;
    note = std::move(notes.front().second);
    notes.pop_front();
    return true;
  }

  ~LoopbackTransport() override {
    if (!closed_) hub_->leave(false);
  }
  void close() override {
    closed_ = true;
    hub_->leave(true);
  }
  void abort(int) override {}

 private:
  Ticket add(std::shared_ptr<LoopbackHub::Transfer> transfer) {
    transfers_.emplace(++last_, std::move(transfer));
    return last_;
  }
  std::shared_ptr<LoopbackHub> hub_;
  int rank_;
  bool closed_ = false;
  Ticket last_ = 0;
  std::map<Ticket, std::shared_ptr<LoopbackHub::Transfer>> transfers_;
};

}  // namespace megatron::comm
