#include "tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <queue>

#include "base/check.h"

namespace megatron::tokenizer {
namespace {

constexpr std::size_t kShort = 64;  // up to here a search through all ranks is faster than a heap

}  // namespace

BpeMerges::BpeMerges(std::size_t count) {
  std::size_t size = 16;
  int bits = 4;
  while (size < 2 * count + 1) {
    size *= 2;
    ++bits;
  }
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64 - bits;
}

BpeMerges::BpeMerges(std::span<const BpeMerge> merges, Rank order) : BpeMerges(merges.size()) {
  std::uint32_t place = 0;
  for (const BpeMerge& merge : merges) insert(merge, order == Rank::place ? place++ : merge.merged);
}

BpeMerges::BpeMerges(std::span<const BpeMerge> merges, std::span<const std::uint32_t> ranks)
    : BpeMerges(merges.size()) {
  MEGATRON_CHECK_EQ(merges.size(), ranks.size());
  for (std::size_t i = 0; i < merges.size(); ++i) insert(merges[i], ranks[i]);
}

void BpeMerges::insert(const BpeMerge& merge, std::uint32_t rank) {
  MEGATRON_CHECK(merge.left < (1U << 31) && merge.right < (1U << 31) && merge.merged < (1U << 31));
  const std::uint64_t key = (std::uint64_t{merge.left} << 32) | merge.right;
  std::size_t slot = home(key);
  while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & mask_;
  if (slots_[slot].key == kEmpty) slots_[slot] = {key, rank, merge.merged};
}

std::size_t BpeMerges::merge(std::uint32_t* ids, std::size_t count) const {
  if (count < 2) return count;
  return count <= kShort ? merge_short(ids, count) : merge_long(ids, count);
}

// The rank of each neighbouring pair stands beside its left id; every round takes the lowest and looks up two new
// pairs.
std::size_t BpeMerges::merge_short(std::uint32_t* ids, std::size_t count) const {
  std::array<Found, kShort> pairs;
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = find(ids[i], ids[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i)
      if (pairs[i].rank < pairs[best].rank) best = i;
    if (pairs[best].rank == kNone) break;
    ids[best] = pairs[best].merged;
    std::copy(ids + best + 2, ids + count, ids + best + 1);
    if (best + 2 < count) std::copy(pairs.data() + best + 2, pairs.data() + count - 1, pairs.data() + best + 1);
    --count;
    if (best > 0) pairs[best - 1] = find(ids[best - 1], ids[best]);
    if (best + 1 < count) pairs[best] = find(ids[best], ids[best + 1]);
  }
  return count;
}

// A doubly linked list of ids and a heap of the pairs that were neighbours once; outdated ones are recognised by the
// ids they would join. Some 28 bytes per id.
std::size_t BpeMerges::merge_long(std::uint32_t* ids, std::size_t count) const {
  struct Node {
    std::uint32_t before, after;
  };
  struct Candidate {
    std::uint32_t rank, at, left, right;
    bool operator<(const Candidate& other) const {  // the heap gives out the greatest
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  constexpr std::uint32_t kEnd = 0xffffffffU, kGone = kNone;
  if (count >= kEnd) throw Error("a word of 4 GiB or more");
  const auto size = static_cast<std::uint32_t>(count);
  std::vector<Node> nodes(count);
  std::vector<Candidate> first;
  const auto candidate = [&](std::uint32_t at, std::uint32_t after, auto add) {
    const Found found = find(ids[at], ids[after]);
    if (found.rank != kNone) add(Candidate{found.rank, at, ids[at], ids[after]});
  };
  for (std::uint32_t i = 0; i < size; ++i) {
    nodes[i] = {i == 0 ? kEnd : i - 1, i + 1 == size ? kEnd : i + 1};
    if (i + 1 < size) candidate(i, i + 1, [&](const Candidate& c) { first.push_back(c); });
  }
  std::priority_queue<Candidate> heap(std::less<Candidate>(), std::move(first));
  while (!heap.empty()) {
    const Candidate c = heap.top();
    heap.pop();
    const std::uint32_t right = ids[c.at] == c.left ? nodes[c.at].after : kEnd;
    if (right == kEnd || ids[right] != c.right) continue;
    ids[c.at] = find(c.left, c.right).merged;
    ids[right] = kGone;
    const std::uint32_t after = nodes[c.at].after = nodes[right].after;
    if (after != kEnd) nodes[after].before = c.at;
    const auto push = [&](const Candidate& made) { heap.push(made); };
    if (nodes[c.at].before != kEnd) candidate(nodes[c.at].before, c.at, push);
    if (after != kEnd) candidate(c.at, after, push);
  }
  return static_cast<std::size_t>(std::remove(ids, ids + count, kGone) - ids);
}

}  // namespace megatron::tokenizer
