#include "comm/local/slot.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/units.h"

namespace megatron::comm {

namespace {
constexpr std::int64_t kMinSlice = 16 * kKiB;
constexpr std::int64_t kMaxSlice = 256 * kKiB;
constexpr std::size_t kFewRanks = 16;
}  // namespace

Slot::Slot(int size)
    : size_(size),
      parts_(static_cast<std::size_t>(size)),
      claims_(std::make_unique<Claim[]>(static_cast<std::size_t>(size))) {}

bool Slot::post(int member, const std::vector<int>& global_ranks, const std::string& group, std::int64_t sequence,
                Request& request) {
  const auto global = [&](int m) { return global_ranks[static_cast<std::size_t>(m)]; };
  if (first_ < 0) {
    first_ = member;
    key_ = request.key;
  } else if (!(request.key == key_)) {
    throw_key_mismatch(group, sequence, global(first_), key_, global(member), request.key);
  }
  Part& part = parts_[static_cast<std::size_t>(member)];
  part.posted = true;
  part.input = request.input_data();
  part.output = request.output_data();
  if (request.kind == OperationKind::all_to_all) {
    part.rows = request.rows;
    part.receive_rows = request.receive_rows;
  }
  return ++arrived_ == size_;
}

void Slot::fill(const std::vector<int>& global_ranks, const std::string& group, Request& request) {
  if (request.kind == OperationKind::all_to_all) check_rows(global_ranks, group);
  cut(request);
  full_.store(true, std::memory_order_seq_cst);
}

void Slot::reset() {
  arrived_ = 0;
  first_ = -1;
  for (Part& part : parts_) part.posted = false;
  slices_.clear();
  for (int member = 0; member < size_; ++member) {
    claim(member).end = 0;
    claim(member).waiting.store(false, std::memory_order_relaxed);
  }
  moved_bytes_ = 0;
  stores_ = kernels::Stores::cached;
  full_.store(false, std::memory_order_relaxed);
  released_.store(0, std::memory_order_relaxed);
}

void Slot::check_rows(const std::vector<int>& global_ranks, const std::string& group) const {
  for (std::size_t s = 0; s < parts_.size(); ++s)
    for (std::size_t d = 0; d < parts_.size(); ++d)
      if (parts_[s].rows[d] != parts_[d].receive_rows[s])
        throw_rows_mismatch(group, key_, global_ranks[s], parts_[s].rows[d], global_ranks[d],
                            parts_[d].receive_rows[s]);
}

// Owners come in ascending order.
void Slot::add(int owner, Slice range) {
  const std::int64_t step = std::clamp(round_up(ceil_div(range.bytes, 4), 64), kMinSlice, kMaxSlice);
  for (std::int64_t done = 0; done < range.bytes; done += step) {
    Slice slice = range;
    slice.begin += done;
    slice.to += done;
    slice.bytes = std::min(step, range.bytes - done);
    slices_.push_back(slice);
  }
  claim(owner).end = static_cast<std::int64_t>(slices_.size());
  moved_bytes_ += range.bytes * (range.source < 0 ? size_ : 1);
}

void Slot::cut(Request& request) {
  // Tensors without memory: agreed on, nothing to do.
  const Tensor& any = request.output.defined() ? request.output : request.input;
  if (any.defined() && any.is_meta()) return;
  switch (request.kind) {
    case OperationKind::all_reduce:
      cut_all_reduce(request.input.bytes());
      break;
    case OperationKind::reduce_scatter:
      cut_reduce_scatter(request.rows, request.row_bytes);
      break;
    case OperationKind::all_gather:
    case OperationKind::all_to_all:
    case OperationKind::broadcast:
      cut_copies(request);
      break;
    default:
      break;
  }
  if (request.kind != OperationKind::all_reduce) stores_ = stores_for(moved_bytes_);
  std::int64_t begin = 0;
  for (int owner = 0; owner < size_; ++owner) {
    claim(owner).next.store(begin, std::memory_order_relaxed);
    begin = claim(owner).end = std::max(begin, claim(owner).end);
  }
  remaining_.store(begin, std::memory_order_release);
}

void Slot::cut_all_reduce(std::int64_t bytes) {
  // Equal shares of at least one slice, on cache lines.
  const std::int64_t share = std::max(round_up(ceil_div(bytes, size_), 64), kMinSlice);
  for (int owner = 0; owner < size_; ++owner) {
    const std::int64_t begin = std::min(owner * share, bytes);
    add(owner, {begin, std::min(share, bytes - begin), begin, -1, -1});
  }
}

void Slot::cut_reduce_scatter(const std::vector<std::int64_t>& rows, std::int64_t row_bytes) {
  std::int64_t begin = 0;
  for (int owner = 0; owner < size_; ++owner) {
    const std::int64_t bytes = rows[static_cast<std::size_t>(owner)] * row_bytes;
    add(owner, {begin, bytes, 0, -1, owner});
    begin += bytes;
  }
}

void Slot::cut_copies(const Request& request) {
  const std::int64_t row_bytes = request.row_bytes;
  for (int d = 0; d < size_; ++d) {
    if (request.kind == OperationKind::broadcast) {
      if (d != request.peer) add(d, {0, request.output.bytes(), 0, request.peer, d});
      continue;
    }
    std::int64_t to = 0;
    for (int s = 0; s < size_; ++s) {
      const Part& source = parts_[static_cast<std::size_t>(s)];
      std::int64_t begin = 0, bytes = 0;
      if (request.kind == OperationKind::all_gather) {
        bytes = request.rows[static_cast<std::size_t>(s)] * row_bytes;
      } else {
        for (int q = 0; q < d; ++q) begin += source.rows[static_cast<std::size_t>(q)] * row_bytes;
        bytes = source.rows[static_cast<std::size_t>(d)] * row_bytes;
      }
      add(d, {begin, bytes, to, s, d});
      to += bytes;
    }
  }
}

bool Slot::work(int member, bool& finished) {
  finished = false;
  for (int i = 0; i < size_; ++i) {
    Claim& owned = claim((member + i) % size_);
    if (owned.next.load(std::memory_order_relaxed) >= owned.end) continue;
    const std::int64_t index = owned.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= owned.end) continue;
    run(slices_[static_cast<std::size_t>(index)]);
    finished = remaining_.fetch_sub(1, std::memory_order_seq_cst) == 1;
    return true;
  }
  return false;
}

void Slot::run(const Slice& slice) const {
  if (slice.source < 0) {
    reduce(slice);
    return;
  }
  const std::byte* from = parts_[static_cast<std::size_t>(slice.source)].input + slice.begin;
  std::byte* to = parts_[static_cast<std::size_t>(slice.destination)].output + slice.to;
  // A rank may gather into a tensor that already holds its own rows.
  if (from != to) kernels::copy_bytes(from, to, slice.bytes, stores_);
}

void Slot::reduce(const Slice& slice) const {
  std::array<const void*, kFewRanks> few_inputs;
  std::array<void*, kFewRanks> few_outputs;
  std::vector<const void*> many_inputs;
  std::vector<void*> many_outputs;
  std::span<const void*> inputs(few_inputs.data(), std::min(parts_.size(), kFewRanks));
  std::span<void*> outputs(few_outputs.data(), inputs.size());
  if (parts_.size() > kFewRanks) {
    many_inputs.resize(parts_.size());
    many_outputs.resize(parts_.size());
    inputs = many_inputs;
    outputs = many_outputs;
  }
  for (std::size_t r = 0; r < parts_.size(); ++r) {
    inputs[r] = parts_[r].input + slice.begin;
    outputs[r] = parts_[r].output + slice.to;
  }
  if (slice.destination >= 0) outputs = outputs.subspan(static_cast<std::size_t>(slice.destination), 1);
  kernels::tree_reduce(key_.reduce_op, key_.dtype, inputs, outputs, slice.bytes / dtype_size(key_.dtype), stores_);
}

}  // namespace megatron::comm
