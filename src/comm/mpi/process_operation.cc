#include "comm/mpi/process_operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/units.h"
#include "kernels/tree_sum.h"

namespace megatron::comm {

namespace {

/// Bytes added in one step: other operations and notes get their turn in between.
constexpr std::int64_t kReduceStep = kMiB;

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0 && to != nullptr && from != nullptr && to != from)
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

struct Range {
  std::int64_t begin = 0, bytes = 0;
};

/// Collectives, all of them: they differ in four ranges per peer and in whether anything is added.
class Collective : public ProcessOperation {
 public:
  Collective(std::shared_ptr<const ProcessGroup> group, std::int64_t sequence, Request& request)
      : ProcessOperation(std::move(group), sequence, request),
        input_(request.input_data()),
        output_(request.output_data()),
        bytes_(request.output.defined() ? request.output.bytes() : 0),
        rows_(std::move(request.rows)),
        receive_rows_(std::move(request.receive_rows)),
        row_bytes_(request.row_bytes),
        peers_(static_cast<std::size_t>(group_->size())) {}

  void start(Wire& wire) override {
    if (adds()) scratch_ = wire.take_scratch(scratch_bytes());
    for (int q = 0; q < n(); ++q)
      if (q != me()) give(wire, q);
    copy_own();
    peers_[static_cast<std::size_t>(me())].noted = true;
  }

  void on_note(Wire& wire, int member, const Note& note) override {
    Peer& peer = peers_[static_cast<std::size_t>(member)];
    check(member, note);
    peer.noted = true;
    peer.tag = note.tag;
    const Range range = taken_from(member);
    if (range.bytes != note.bytes)
      throw CommError(str_cat("rank ", group_->global(member), " sends ", note.bytes, " bytes for ", key_.text(),
                              " in group ", group_->name, ", expected ", range.bytes));
    std::byte* into = adds() ? scratch_of(member) : output_ + range.begin;
    if (!note.data.empty())
      copy_bytes(into, note.data.data(), range.bytes);
    else if (range.bytes > 0)
      wire.receive(group_->global(member), note.tag, into, range.bytes, peer.receives);
  }

  bool step(Wire& wire) override {
    if (done()) return false;
    bool progress = false;
    for (Peer& peer : peers_) {
      progress |= wire.test(peer.sends);
      progress |= wire.test(peer.receives);
    }
    if (!all_here()) return progress;
    if (adds() && added_ < own_bytes()) {
      add_some();
      return true;
    }
    if (two_phases() && !phase_2_) {
      if (!all_sent()) return progress;  // the sums come to where the terms were
      share_sums(wire);
      return true;
    }
    if (!all_sent()) return progress;
    if (scratch_ != nullptr) wire.give_scratch(std::move(scratch_), scratch_bytes());
    finish();
    return true;
  }

  bool misses(int member) const override { return !peers_[static_cast<std::size_t>(member)].noted; }

 private:
  struct Peer {
    bool noted = false;
    int tag = -1;       // the peer's, for what comes
    int send_tag = -1;  // ours, for what goes
    std::vector<Transport::Ticket> sends, receives;
  };

  int n() const { return group_->size(); }
  int me() const { return group_->me; }
  bool adds() const { return kind_ == OperationKind::all_reduce || kind_ == OperationKind::reduce_scatter; }
  bool two_phases() const { return kind_ == OperationKind::all_reduce && bytes_ > kInlineBytes; }
  std::int64_t rows_before(const std::vector<std::int64_t>& rows, int q) const {
    std::int64_t sum = 0;
    for (int r = 0; r < q; ++r) sum += rows[static_cast<std::size_t>(r)];
    return sum;
  }
  Range row_range(const std::vector<std::int64_t>& rows, int q) const {
    return {rows_before(rows, q) * row_bytes_, rows[static_cast<std::size_t>(q)] * row_bytes_};
  }
  // all_reduce: the part that member q adds.
  Range segment(int q) const {
    if (!two_phases()) return {0, bytes_};
    const std::int64_t share = round_up(ceil_div(bytes_, n()), 64);
    const std::int64_t begin = std::min(q * share, bytes_);
    return {begin, std::min(share, bytes_ - begin)};
  }

  // Of our input, for q.
  Range given_to(int q) const {
    switch (kind_) {
      case OperationKind::all_reduce:
        return segment(q);
      case OperationKind::reduce_scatter:
      case OperationKind::all_to_all:
        return row_range(rows_, q);
      case OperationKind::all_gather:
        return {0, rows_[static_cast<std::size_t>(me())] * row_bytes_};
      case OperationKind::broadcast:
        return {0, peer_ == me() ? bytes_ : 0};
      default:
        return {};
    }
  }
  // Of our output, from q; for sums, where they stand.
  Range taken_from(int q) const {
    switch (kind_) {
      case OperationKind::all_reduce:
        return segment(me());
      case OperationKind::reduce_scatter:
        return {0, rows_[static_cast<std::size_t>(me())] * row_bytes_};
      case OperationKind::all_to_all:
        return row_range(receive_rows_, q);
      case OperationKind::all_gather:
        return row_range(rows_, q);
      case OperationKind::broadcast:
        return {0, q == peer_ ? bytes_ : 0};
      default:
        return {};
    }
  }

  std::int64_t own_bytes() const { return taken_from(me()).bytes; }
  std::int64_t scratch_bytes() const { return own_bytes() * (n() - 1); }
  std::byte* scratch_of(int q) const { return scratch_.get() + (q < me() ? q : q - 1) * own_bytes(); }

  void give(Wire& wire, int q) {
    const Range range = given_to(q);
    Peer& peer = peers_[static_cast<std::size_t>(q)];
    Note note;
    note.kind = NoteKind::collective;
    note.group = group_->id;
    note.sequence = sequence_;
    note.key = key_;
    note.bytes = range.bytes;
    if (kind_ == OperationKind::all_to_all) note.rows = rows_[static_cast<std::size_t>(q)];
    const bool apart = range.bytes > kInlineBytes;
    if (apart || two_phases()) note.tag = peer.send_tag = wire.new_tags(group_->global(q));
    const std::byte* data = input_ == nullptr ? nullptr : input_ + range.begin;
    if (!apart && range.bytes > 0) note.data.assign(data, data + range.bytes);
    wire.send_note(group_->global(q), note);
    if (apart) wire.send(group_->global(q), peer.send_tag, data, range.bytes, peer.sends);
  }

  void copy_own() {
    if (kind_ == OperationKind::all_gather) {
      const Range range = row_range(rows_, me());
      copy_bytes(output_ + range.begin, input_, range.bytes);
    } else if (kind_ == OperationKind::all_to_all) {
      const Range from = row_range(rows_, me());
      copy_bytes(output_ + row_range(receive_rows_, me()).begin, input_ + from.begin, from.bytes);
    }
  }

  void check(int member, const Note& note) const {
    if (!(note.key == key_))
      throw_key_mismatch(group_->name, sequence_, group_->global(me()), key_, group_->global(member), note.key);
    if (kind_ == OperationKind::all_to_all && note.rows != receive_rows_[static_cast<std::size_t>(member)])
      throw_rows_mismatch(group_->name, key_, group_->global(member), note.rows, group_->global(me()),
                          receive_rows_[static_cast<std::size_t>(member)]);
  }

  bool all_here() const {
    return std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.noted && p.receives.empty(); });
  }
  bool all_sent() const {
    return std::all_of(peers_.begin(), peers_.end(), [](const Peer& p) { return p.sends.empty(); });
  }

  void add_some() {
    const std::int64_t bytes = std::min(kReduceStep, own_bytes() - added_);
    std::vector<const void*> inputs(static_cast<std::size_t>(n()));
    for (int q = 0; q < n(); ++q)
      inputs[static_cast<std::size_t>(q)] = (q == me() ? input_ + given_to(me()).begin : scratch_of(q)) + added_;
    std::byte* out = output_ + taken_from(me()).begin + added_;
    kernels::tree_reduce(key_.reduce_op, key_.dtype, inputs, out, bytes / dtype_size(key_.dtype));
    added_ += bytes;
  }

  void share_sums(Wire& wire) {
    phase_2_ = true;
    const Range own = segment(me());
    for (int q = 0; q < n(); ++q) {
      if (q == me()) continue;
      Peer& peer = peers_[static_cast<std::size_t>(q)];
      const Range other = segment(q);
      if (other.bytes > 0)
        wire.receive(group_->global(q), peer.tag + 1, output_ + other.begin, other.bytes, peer.receives);
      if (own.bytes > 0) wire.send(group_->global(q), peer.send_tag + 1, output_ + own.begin, own.bytes, peer.sends);
    }
  }

  const std::byte* input_;
  std::byte* output_;
  std::int64_t bytes_;  // of the output
  std::vector<std::int64_t> rows_, receive_rows_;
  std::int64_t row_bytes_;
  std::vector<Peer> peers_;
  std::unique_ptr<std::byte[]> scratch_;
  std::int64_t added_ = 0;
  bool phase_2_ = false;
};

/// The sender's end of a message. It owns a copy, so the rank has its tensor back at once.
class Sending : public ProcessOperation {
 public:
  Sending(std::shared_ptr<const ProcessGroup> group, std::int64_t sequence, Request& request)
      : ProcessOperation(std::move(group), sequence, request) {
    const std::byte* data = request.input_data();
    copy_.assign(data, data + request.input.bytes());
  }

  void start(Wire& wire) override {
    const int to = group_->global(peer_);
    Note note;
    note.kind = NoteKind::message;
    note.group = group_->id;
    note.sequence = sequence_;
    note.key = key_;
    note.bytes = static_cast<std::int64_t>(copy_.size());
    const bool apart = note.bytes > kInlineBytes;
    if (apart) note.tag = wire.new_tags(to);
    if (!apart) note.data = std::move(copy_);
    wire.send_note(to, note);
    if (apart) wire.send(to, note.tag, copy_.data(), note.bytes, sends_);
  }
  void on_note(Wire&, int, const Note&) override {}
  bool step(Wire& wire) override {
    if (done()) return false;
    const bool progress = wire.test(sends_);
    if (sends_.empty()) finish();
    return progress || done();
  }
  bool misses(int) const override { return false; }

 private:
  std::vector<std::byte> copy_;
  std::vector<Transport::Ticket> sends_;
};

class Receiving : public ProcessOperation {
 public:
  Receiving(std::shared_ptr<const ProcessGroup> group, std::int64_t sequence, Request& request)
      : ProcessOperation(std::move(group), sequence, request), output_(request.output_data()) {}

  void start(Wire&) override {}
  void on_note(Wire& wire, int member, const Note& note) override {
    if (!(note.key == key_))
      throw_key_mismatch(group_->name, note.sequence, group_->global(member), note.key, group_->global(group_->me),
                         key_);
    noted_ = true;
    if (note.tag < 0)
      copy_bytes(output_, note.data.data(), note.bytes);
    else
      wire.receive(group_->global(member), note.tag, output_, note.bytes, receives_);
  }
  bool step(Wire& wire) override {
    if (done() || !noted_) return false;
    const bool progress = wire.test(receives_);
    if (receives_.empty()) finish();
    return progress || done();
  }
  bool misses(int member) const override { return member == peer_ && !noted_; }

 private:
  std::byte* output_;
  bool noted_ = false;
  std::vector<Transport::Ticket> receives_;
};

}  // namespace

int Wire::new_tags(int to) {
  int& next = next_tag_[static_cast<std::size_t>(to)];
  const int tag = next;
  next = (next + 2) % Transport::kNumTags;
  return tag;
}

void Wire::send_note(int to, const Note& note) {
  auto bytes = std::make_unique<std::vector<std::byte>>(encode(note));
  const Transport::Ticket ticket = transport_.send_note(to, *bytes);
  notes_.push_back({std::move(bytes), ticket});
}

void Wire::send(int to, int tag, const std::byte* data, std::int64_t bytes, std::vector<Transport::Ticket>& tickets) {
  for (std::int64_t done = 0; done < bytes; done += max_bytes_)
    tickets.push_back(transport_.send(to, tag, data + done, std::min(max_bytes_, bytes - done)));
}

void Wire::receive(int from, int tag, std::byte* data, std::int64_t bytes, std::vector<Transport::Ticket>& tickets) {
  for (std::int64_t done = 0; done < bytes; done += max_bytes_)
    tickets.push_back(transport_.receive(from, tag, data + done, std::min(max_bytes_, bytes - done)));
}

bool Wire::test(std::vector<Transport::Ticket>& tickets) {
  const auto end =
      std::remove_if(tickets.begin(), tickets.end(), [this](Transport::Ticket t) { return transport_.test(t); });
  const bool any = end != tickets.end();
  tickets.erase(end, tickets.end());
  return any;
}

bool Wire::sweep_notes() {
  const auto end = std::remove_if(notes_.begin(), notes_.end(),
                                  [this](const SentNote& note) { return transport_.test(note.ticket); });
  const bool any = end != notes_.end();
  notes_.erase(end, notes_.end());
  return any;
}

std::unique_ptr<std::byte[]> Wire::take_scratch(std::int64_t bytes) {
  for (auto it = scratch_.begin(); it != scratch_.end(); ++it) {
    if (it->first != bytes) continue;
    auto block = std::move(it->second);
    scratch_.erase(it);
    return block;
  }
  return std::unique_ptr<std::byte[]>(new std::byte[static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))]);
}

void Wire::give_scratch(std::unique_ptr<std::byte[]> block, std::int64_t bytes) {
  // A step asks for the same sizes again; the oldest go first when sizes change.
  constexpr std::size_t kMaxBlocks = 16;
  if (scratch_.size() == kMaxBlocks) scratch_.erase(scratch_.begin());
  scratch_.emplace_back(bytes, std::move(block));
}

ProcessOperation::ProcessOperation(std::shared_ptr<const ProcessGroup> group, std::int64_t sequence, Request& request)
    : group_(std::move(group)), sequence_(sequence), kind_(request.kind), key_(request.key), peer_(request.peer) {}

std::shared_ptr<ProcessOperation> make_process_operation(std::shared_ptr<const ProcessGroup> group,
                                                         std::int64_t sequence, Request& request) {
  if (request.kind == OperationKind::send) return std::make_shared<Sending>(std::move(group), sequence, request);
  if (request.kind == OperationKind::receive) return std::make_shared<Receiving>(std::move(group), sequence, request);
  return std::make_shared<Collective>(std::move(group), sequence, request);
}

}  // namespace megatron::comm
