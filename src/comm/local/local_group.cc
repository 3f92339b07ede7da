#include "comm/local/local_group.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

namespace megatron::comm {

LocalShared::LocalShared(int world_size, int spin_in)
    : parkers(static_cast<std::size_t>(world_size)),
      kept(static_cast<std::size_t>(world_size)),
      finished(std::make_unique<std::atomic<bool>[]>(static_cast<std::size_t>(world_size))),
      abort([this] { wake_all(); }),
      spin(spin_in) {}

void LocalShared::wake_all() {
  for (Parker& parker : parkers) parker.wake();
}

LocalGroup::LocalGroup(LocalShared& shared, std::string name, std::vector<int> members)
    : shared_(shared),
      name_(std::move(name)),
      members_(std::move(members)),
      mailboxes_(members_.size() * members_.size()) {}

void LocalGroup::wake_members(int except) {
  for (int member = 0; member < size(); ++member)
    if (member != except) shared_.parker(global(member)).wake();
}

void LocalGroup::check_missing(const Slot& slot, int member, const Key& key) {
  if (shared_.num_finished.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(mutex_);
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
    if (request.input.defined()) tensors_.push_back(std::move(request.input));
    if (request.output.defined()) tensors_.push_back(std::move(request.output));
  }
  bool unwinding() const { return std::uncaught_exceptions() > exceptions_; }
  KeptTensors& kept() { return shared_.kept[static_cast<std::size_t>(global_rank_)]; }
  Parker& parker() { return shared_.parker(global_rank_); }

  LocalGroup& group_;
  LocalShared& shared_;
  int member_;
  int global_rank_;
  Key key_;
  std::vector<Tensor> tensors_;
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
    if (!slot_->done()) kept().keep([slot = slot_] { return slot->done(); }, std::move(tensors_));
  }

  void wait() override {
    while (!slot_->done()) {
      check();
      parker().wait(
          [this] {
            if (shared_.abort.aborted() || slot_->done()) return true;
            if (slot_->full()) return work();
            group_.check_missing(*slot_, member_, key_);
            return false;
          },
          shared_.spin);
    }
  }

  // Helps with one slice, so that members who only ask make progress too.
  bool ready() override {
    if (slot_->done()) return true;
    check();
    bool finished = false;
    if (slot_->full() && slot_->work(member_, finished) && finished) group_.wake_members(member_);
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
      if (finished) group_.wake_members(member_);
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
    kept().keep([message = message_] { return message->taken.load(std::memory_order_acquire); }, std::move(tensors_));
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
    if (!done())
      kept().keep([receive = receive_] { return receive->done.load(std::memory_order_acquire); }, std::move(tensors_));
  }

  void wait() override {
    parker().wait(
        [this] {
          if (done() || shared_.abort.aborted()) return true;
          if (shared_.num_finished.load(std::memory_order_acquire) > 0) check_sender();
          return false;
        },
        shared_.spin);
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
      const std::lock_guard lock(group_.mutex_);
      auto& entry = group_.open_[sequence];
      if (entry == nullptr) entry = std::make_shared<Slot>(group_.size());
      slot = entry;
      full = slot->post(member_, group_.members_, group_.name_, sequence, request);
      if (full) group_.open_.erase(sequence);
    }
    if (full) group_.wake_members(member_);
    if (slot->done()) return nullptr;
    return std::make_unique<CollectiveOperation>(group_, member_, std::move(request), std::move(slot));
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
    if (to != nullptr && from != nullptr && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
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
