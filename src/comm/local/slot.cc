#include "comm/local/slot.h"

#include <algorithm>
#include <cstring>

#include "base/units.h"
#include "kernels/tree_sum.h"

namespace megatron::comm {

namespace {
constexpr std::int64_t kMinSlice = 64 * kKiB;
constexpr std::int64_t kMaxSlice = 256 * kKiB;
}  // namespace

Slot::Slot(int size)
    : size_(size),
      parts_(static_cast<std::size_t>(size)),
      slices_(static_cast<std::size_t>(size)),
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
  if (++arrived_ < size_) return false;
  if (request.kind == OperationKind::all_to_all) check_rows(global_ranks, group);
  cut(request);
  full_.store(true, std::memory_order_release);
  return true;
}

void Slot::check_rows(const std::vector<int>& global_ranks, const std::string& group) const {
  for (std::size_t s = 0; s < parts_.size(); ++s)
    for (std::size_t d = 0; d < parts_.size(); ++d)
      if (parts_[s].rows[d] != parts_[d].receive_rows[s])
        throw_rows_mismatch(group, key_, global_ranks[s], parts_[s].rows[d], global_ranks[d],
                            parts_[d].receive_rows[s]);
}

void Slot::add(int owner, Slice range) {
  const std::int64_t step = std::clamp(round_up(ceil_div(range.bytes, 4), 64), kMinSlice, kMaxSlice);
  auto& slices = slices_[static_cast<std::size_t>(owner)];
  for (std::int64_t done = 0; done < range.bytes; done += step) {
    Slice slice = range;
    slice.begin += done;
    slice.to += done;
    slice.bytes = std::min(step, range.bytes - done);
    slices.push_back(slice);
  }
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
  std::int64_t total = 0;
  for (int owner = 0; owner < size_; ++owner) {
    const auto count = static_cast<std::int64_t>(slices_[static_cast<std::size_t>(owner)].size());
    claims_[static_cast<std::size_t>(owner)].end = count;
    total += count;
  }
  remaining_.store(total, std::memory_order_release);
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
    const auto owner = static_cast<std::size_t>((member + i) % size_);
    Claim& claim = claims_[owner];
    if (claim.next.load(std::memory_order_relaxed) >= claim.end) continue;
    const std::int64_t index = claim.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= claim.end) continue;
    run(slices_[owner][static_cast<std::size_t>(index)]);
    finished = remaining_.fetch_sub(1, std::memory_order_acq_rel) == 1;
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
  if (from != to) std::memcpy(to, from, static_cast<std::size_t>(slice.bytes));
}

void Slot::reduce(const Slice& slice) const {
  std::vector<const void*> inputs(parts_.size());
  for (std::size_t r = 0; r < parts_.size(); ++r) inputs[r] = parts_[r].input + slice.begin;
  const int first = std::max(slice.destination, 0);
  std::byte* out = parts_[static_cast<std::size_t>(first)].output + slice.to;
  kernels::tree_reduce(key_.reduce_op, key_.dtype, inputs, out, slice.bytes / dtype_size(key_.dtype));
  if (slice.destination >= 0) return;
  for (std::size_t r = 1; r < parts_.size(); ++r)
    std::memcpy(parts_[r].output + slice.to, out, static_cast<std::size_t>(slice.bytes));
}

}  // namespace megatron::comm
