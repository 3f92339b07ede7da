#include "comm/local/local_group.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

namespace megatron::comm {

LocalShared::LocalShared(int world_size, int spin_in)
    : parkers(static_cast<std::size_t>(world_size)),
      kept(static_cast<std::size_t>(world_size)),
      cores(static_cast<std::size_t>(world_size)),
      finished(std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(world_size))),
      abort([this] { wake_all(); }),
      spin(spin_in),
      helpers(std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - 1)) {}

void LocalShared::wake_all() {
  for (Parker& parker : parkers) parker.wake();
}

void LocalShared::note_core(int rank) {
  if (spin > 0) cores[static_cast<std::size_t>(rank)].index.store(::sched_getcpu(), std::memory_order_relaxed);
}

int LocalShared::spin_for(int rank, const std::vector<int>& members) const {
  if (spin == 0) return 0;
  const int own = ::sched_getcpu();
  for (const int other : members)
    if (other != rank && cores[static_cast<std::size_t>(other)].index.load(std::memory_order_relaxed) == own) return 0;
  return spin;
}

LocalGroup::LocalGroup(LocalShared& shared, std::string name, std::vector<int> members)
    : shared_(shared),
      name_(std::move(name)),
      members_(std::move(members)),
      mailboxes_(members_.size() * members_.size()) {}

std::unique_lock<std::mutex> LocalGroup::lock() {
  for (int i = 0; i < shared_.spin; ++i) {
    if (std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) return lock;
    Parker::relax();
  }
  return std::unique_lock(mutex_);
}

std::shared_ptr<Slot> LocalGroup::new_slot() {
  // Slots are released about in the order in which they were taken, so the first look mostly finds one.
  for (std::size_t looks = 0; looks < slots_.size(); ++looks) {
    const std::shared_ptr<Slot>& slot = slots_[next_slot_++ % slots_.size()];
    if (!slot->is_released()) continue;
    slot->reset();
    return slot;
  }
  return slots_.emplace_back(std::make_shared<Slot>(size()));
}

std::shared_ptr<Slot> LocalGroup::open(std::int64_t sequence) {
  // Every member posts in order, so a new operation is the next one.
  const auto place = static_cast<std::size_t>(sequence - first_open_);
  if (place == open_.size()) open_.push_back(new_slot());
  return open_[place];
}

void LocalGroup::close(std::int64_t sequence) {
  open_[static_cast<std::size_t>(sequence - first_open_)].reset();
  for (; !open_.empty() && open_.front() == nullptr; ++first_open_) open_.pop_front();
}

// One of those who wait must be woken if any: it may be that nobody else ever looks at the slot before they go on.
void LocalGroup::wake_helpers(const Slot& slot, int member) {
  std::int64_t wanted = std::min<std::int64_t>(slot.num_slices(), shared_.helpers);
  for (int i = 1; i < size() && wanted > 0; ++i) {
    const int other = (member + i) % size();
    if (!slot.is_waiting(other)) continue;
    shared_.parker(global(other)).wake();
    --wanted;
  }
}

void LocalGroup::wake_waiting(const Slot& slot, int member) {
  for (int other = 0; other < size(); ++other)
    if (other != member && slot.is_waiting(other)) shared_.parker(global(other)).wake();
}

void LocalGroup::check_missing(const Slot& slot, int member, const Key& key) {
  if (shared_.num_finished.load(std::memory_order_acquire) == 0) return;
  const std::unique_lock held = lock();
  for (int m = 0; m < size(); ++m)
    // In this order: a rank that has ended has posted all it ever will.
    if (shared_.finished[static_cast<std::size_t>(global(m))].load(std::memory_order_acquire) && !slot.has(m))
      throw CommError(str_cat("rank ", global(member), " waits in group ", name_, " for ", key.text(), ", but rank ",
                              global(m), " has ended without it"));
}

/// What the operations of a member have in common: its group, its place, and the tensors it must not let go too early.
class LocalOperation : public Operation {
 protected:
  LocalOperation(LocalGroup& group, LocalShared& shared, int member, int global_rank, Request&& request)
      : group_(group), shared_(shared), member_(member), global_rank_(global_rank), key_(std::move(request.key)) {
    input_ = std::move(request.input);
    output_ = std::move(request.output);
  }
  bool unwinding() const { return std::uncaught_exceptions() > exceptions_; }
  void keep_tensors(std::function<bool()> released) {
    std::vector<Tensor> tensors;
    for (Tensor* tensor : {&input_, &output_})
      if (tensor->defined()) tensors.push_back(std::move(*tensor));
    shared_.kept[static_cast<std::size_t>(global_rank_)].keep(std::move(released), std::move(tensors));
  }
  Parker& parker() { return shared_.parker(global_rank_); }

  LocalGroup& group_;
  LocalShared& shared_;
  int member_;
  int global_rank_;
  Key key_;
  Tensor input_, output_;
  int exceptions_ = std::uncaught_exceptions();
};

class CollectiveOperation : public LocalOperation {
 public:
  CollectiveOperation(LocalGroup& group, int member, Request&& request, std::shared_ptr<Slot> slot)
      : LocalOperation(group, group.shared_, member, group.global(member), std::move(request)),
        slot_(std::move(slot)) {}

  ~CollectiveOperation() override {
    if (!slot_->done() && !unwinding()) {
      try {
        wait();
      } catch (const std::exception&) {  // the world has been aborted; the next operation says so
      }
    }
    if (slot_->done())
      slot_->release();
    else
      keep_tensors([slot = slot_] { return slot->done(); });
  }

  void wait() override {
    if (slot_->done()) return;
    slot_->set_waiting(member_);
    while (!slot_->done()) {
      check();
      parker().wait(
          [this] {
            if (shared_.abort.aborted() || slot_->done()) return true;
            if (slot_->full()) return work();
            group_.check_missing(*slot_, member_, key_);
            return false;
          },
          shared_.spin_for(global_rank_, group_.members_));
    }
  }

  // Helps with one slice, so that members who only ask make progress too.
  bool ready() override {
    if (slot_->done()) return true;
    check();
    bool finished = false;
    if (slot_->full() && slot_->work(member_, finished) && finished) group_.wake_waiting(*slot_, member_);
    return slot_->done();
  }

 private:
  void check() {
    if (shared_.abort.aborted()) shared_.abort.check(global_rank_, group_.name_, key_.text());
  }

  // Claims slices until none is left; true if it did any.
  bool work() {
    bool any = false, finished = false;
    while (!shared_.abort.aborted() && slot_->work(member_, finished)) {
      any = true;
      if (finished) group_.wake_waiting(*slot_, member_);
    }
    return any;
  }

  std::shared_ptr<Slot> slot_;
};

class SendOperation : public LocalOperation {
 public:
  SendOperation(LocalGroup& group, LocalShared& shared, int member, int global_rank, Request&& request,
                Mailbox& mailbox, std::shared_ptr<Message> message)
      : LocalOperation(group, shared, member, global_rank, std::move(request)),
        mailbox_(mailbox),
        message_(std::move(message)) {}

  ~SendOperation() override {
    if (message_->taken.load(std::memory_order_acquire) || own_copy_) return;
    keep_tensors([message = message_] { return message->taken.load(std::memory_order_acquire); });
  }

  // After wait() the tensor is the caller's again: what has not been taken by now is copied.
  void wait() override {
    const std::lock_guard lock(mailbox_.mutex);
    if (message_->taken.load(std::memory_order_relaxed) || own_copy_) return;
    if (message_->data == nullptr || message_->bytes == 0) return;
    message_->staging = std::make_unique<std::byte[]>(static_cast<std::size_t>(message_->bytes));
    std::memcpy(message_->staging.get(), message_->data, static_cast<std::size_t>(message_->bytes));
    message_->data = message_->staging.get();
    own_copy_ = true;
  }

  bool ready() override { return own_copy_ || message_->taken.load(std::memory_order_acquire); }

 private:
  Mailbox& mailbox_;
  std::shared_ptr<Message> message_;
  bool own_copy_ = false;
};

class ReceiveOperation : public LocalOperation {
 public:
  ReceiveOperation(LocalGroup& group, int member, int sender, Request&& request, std::shared_ptr<PostedReceive> receive)
      : LocalOperation(group, group.shared_, member, group.global(member), std::move(request)),
        sender_(sender),
        receive_(std::move(receive)) {}

  ~ReceiveOperation() override {
    if (!done() && !unwinding()) {
      try {
        wait();
      } catch (const std::exception&) {  // the world has been aborted; the next operation says so
      }
    }
    if (!done()) keep_tensors([receive = receive_] { return receive->done.load(std::memory_order_acquire); });
  }

  void wait() override {
    parker().wait(
        [this] {
          if (done() || shared_.abort.aborted()) return true;
          if (shared_.num_finished.load(std::memory_order_acquire) > 0) check_sender();
          return false;
        },
        shared_.spin_for(global_rank_, group_.members_));
    if (!done()) shared_.abort.check(global_rank_, group_.name_, key_.text());
  }

  bool ready() override {
    if (!done()) shared_.abort.check(global_rank_, group_.name_, key_.text());
    return done();
  }

 private:
  bool done() const { return receive_->done.load(std::memory_order_acquire); }
  void check_sender() {
    const int rank = group_.global(sender_);
    if (!shared_.finished[static_cast<std::size_t>(rank)].load(std::memory_order_acquire) || done()) return;
    throw CommError(str_cat("rank ", global_rank_, " waits in group ", group_.name_, " for ", key_.text(),
                            ", but rank ", rank, " has ended without it"));
  }

  int sender_;
  std::shared_ptr<PostedReceive> receive_;
};

/// A member's end of a LocalGroup.
class LocalChannel : public Channel {
 public:
  LocalChannel(LocalGroup& group, int member) : group_(group), member_(member) {}

  std::unique_ptr<Operation> post(Request request) override {
    LocalShared& shared = group_.shared_;
    const int rank = group_.global(member_);
    if (shared.abort.aborted()) shared.abort.check(rank, group_.name_, request.key.text());
    shared.kept[static_cast<std::size_t>(rank)].sweep();
    shared.note_core(rank);
    if (request.kind == OperationKind::send) return post_send(std::move(request));
    if (request.kind == OperationKind::receive) return post_receive(std::move(request));
    return post_collective(std::move(request));
  }

 private:
  std::unique_ptr<Operation> post_collective(Request request) {
    std::shared_ptr<Slot> slot;
    bool full = false;
    const std::int64_t sequence = sequence_++;
    {
      const std::unique_lock held = group_.lock();
      slot = group_.open(sequence);
      full = slot->post(member_, group_.members_, group_.name_, sequence, request);
      if (full) group_.close(sequence);
    }
    if (full) {
      slot->fill(group_.members_, group_.name_, request);
      share_out(*slot);
    }
    if (slot->done()) {
      slot->release();
      return nullptr;
    }
    return std::make_unique<CollectiveOperation>(group_, member_, std::move(request), std::move(slot));
  }

  void share_out(Slot& slot) {
    bool finished = slot.num_slices() == 0;
    while (slot.is_small() && !finished && slot.work(member_, finished)) {
    }
    if (finished)
      group_.wake_waiting(slot, member_);
    else
      group_.wake_helpers(slot, member_);
  }

  // Whoever comes second, sender or receiver, copies.
  std::unique_ptr<Operation> post_send(Request request) {
    const int to = request.peer;
    Mailbox& mailbox = group_.mailbox(member_, to);
    std::unique_lock lock(mailbox.mutex);
    if (!mailbox.receives.empty()) {
      const std::shared_ptr<PostedReceive> receive = mailbox.receives.front();
      if (!(receive->key == request.key))
        throw_key_mismatch(group_.name_, sent_, group_.global(to), receive->key, group_.global(member_), request.key);
      mailbox.receives.pop_front();
      copy(receive->into, request.input_data(), request.input.bytes());
      receive->done.store(true, std::memory_order_release);
      lock.unlock();
      group_.shared_.parker(group_.global(to)).wake();
      return nullptr;
    }
    auto message = std::make_shared<Message>();
    message->key = request.key;
    message->bytes = request.input.bytes();
    message->sequence = sent_++;
    message->data = request.input_data();
    mailbox.messages.push_back(message);
    lock.unlock();
    return std::make_unique<SendOperation>(group_, group_.shared_, member_, group_.global(member_), std::move(request),
                                           mailbox, std::move(message));
  }

  std::unique_ptr<Operation> post_receive(Request request) {
    const int from = request.peer;
    Mailbox& mailbox = group_.mailbox(from, member_);
    const std::lock_guard lock(mailbox.mutex);
    if (!mailbox.messages.empty()) {
      const std::shared_ptr<Message> message = mailbox.messages.front();
      if (!(message->key == request.key))
        throw_key_mismatch(group_.name_, message->sequence, group_.global(from), message->key, group_.global(member_),
                           request.key);
      mailbox.messages.pop_front();
      copy(request.output_data(), message->data, message->bytes);
      message->staging.reset();
      message->taken.store(true, std::memory_order_release);
      return nullptr;
    }
    auto receive = std::make_shared<PostedReceive>();
    receive->key = request.key;
    receive->into = request.output_data();
    mailbox.receives.push_back(receive);
    return std::make_unique<ReceiveOperation>(group_, member_, from, std::move(request), std::move(receive));
  }

  static void copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
    if (to == nullptr || from == nullptr || bytes <= 0) return;
    kernels::copy_bytes(from, to, bytes, stores_for(bytes));
  }

  LocalGroup& group_;
  int member_;
  std::int64_t sequence_ = 0;
  std::int64_t sent_ = 0;
};

std::unique_ptr<Channel> LocalGroup::channel(int rank_in_group) {
  return std::make_unique<LocalChannel>(*this, rank_in_group);
}

}  // namespace megatron::comm
