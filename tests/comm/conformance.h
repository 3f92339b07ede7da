// What every world must do, as one body of code that each rank runs: in the local world under gtest, between MPI
// processes under mpirun. Expected values come from a tree written here, in plain recursion.
#pragma once

#include <cstring>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "base/float16.h"
#include "comm/world.h"
#include "tensor/tensor.h"

namespace megatron::comm::conformance {

using Rows = std::vector<std::int64_t>;

/// A world whose watchdog leaves slow test machines alone, and which fails silently.
inline WorldOptions options_of(int world_size) {
  WorldOptions options;
  options.world_size = world_size;
  options.timeout_seconds = 60;
  options.grace_seconds = 60;
  options.print_failure = false;
  return options;
}

/// The element `index` of what `rank` gives to operation `salt`: floats whose sums depend on the order of addition.
template <typename T>
T value(int rank, std::int64_t index, int salt) {
  std::uint64_t x = static_cast<std::uint64_t>(index) * 0x9E3779B97F4A7C15U +
                    static_cast<std::uint64_t>(rank) * 0xD1B54A32D192ED03U +
                    static_cast<std::uint64_t>(salt) * 0x8CB92BA72F3D8DD7U;
  x = (x ^ (x >> 31)) * 0xBF58476D1CE4E5B9U;
  x ^= x >> 29;
  const auto word = static_cast<std::int64_t>(x >> 40);
  if constexpr (sizeof(T) == 2)  // bfloat16, float16: all within their range
    return T(static_cast<float>(word - (1 << 23)) * 0x1p-20F * static_cast<float>(1 << (x % 4)));
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(word - (1 << 23)) * static_cast<T>(1 << (x % 24));
  else
    return static_cast<T>(word - (1 << 23));
}

/// The canonical tree: split at the largest power of two below the number of terms.
template <typename T>
T tree(const T* terms, int count, ReduceOp op) {
  if (count == 1) return terms[0];
  int half = 1;
  while (half * 2 < count) half *= 2;
  const T a = tree(terms, half, op), b = tree(terms + half, count - half, op);
  if (op == ReduceOp::max) return a > b ? a : b;
  if (op == ReduceOp::min) return a < b ? a : b;
  return a + b;
}

template <typename T>
T expected_sum(const std::vector<int>& members, std::int64_t index, int salt, ReduceOp op = ReduceOp::sum) {
  std::conditional_t<sizeof(T) == 2, float, T> terms[16];  // 16-bit types are added in float, rounded once
  int count = 0;
  for (const int member : members) terms[count++] = value<T>(member, index, salt);
  return T(tree(terms, count, op));
}

template <typename T>
Tensor make(tensor::Allocator& allocator, const Shape& shape, int rank, std::int64_t first, int salt) {
  Tensor t = Tensor::empty(allocator, shape, DTypeOf<T>::value, MemoryKind::communication);
  for (std::int64_t i = 0; i < t.numel(); ++i) t.data<T>()[i] = value<T>(rank, first + i, salt);
  return t;
}

/// Compares bits.
template <typename T>
void expect_bits(const T& got, const T& want, const char* what, std::int64_t index) {
  if (std::memcmp(&got, &want, sizeof(T)) != 0)
    throw Error(str_cat("conformance: ", what, " element ", index, " is ", got, ", not ", want));
}

/// One rank's end of the test: its context, one group and memory.
struct Case {
  RankContext& rank;
  Communicator& group;
  tensor::Allocator& allocator;
  int me() const { return rank.rank(); }
  int size() const { return group.size(); }
  int global(int member) const { return group.members()[static_cast<std::size_t>(member)]; }
};

/// Rows of rank r: uneven, some of them none.
inline Rows uneven_rows(int size, std::int64_t scale, int salt) {
  Rows rows;
  for (int r = 0; r < size; ++r) rows.push_back(((r + salt) % 3) * scale);
  return rows;
}

inline std::int64_t rows_before(const Rows& rows, int rank) {
  return std::accumulate(rows.begin(), rows.begin() + rank, std::int64_t{0});
}
inline std::int64_t rows_of(const Rows& rows, int rank) { return rows[static_cast<std::size_t>(rank)]; }

template <typename T>
void all_reduce(const Case& c, std::int64_t count, ReduceOp op, int salt) {
  Tensor t = make<T>(c.allocator, {count}, c.me(), 0, salt);
  t = c.group.all_reduce(std::move(t), op, "all_reduce").wait();
  for (std::int64_t i = 0; i < count; ++i)
    expect_bits(t.data<T>()[i], expected_sum<T>(c.group.members(), i, salt, op), "all_reduce", i);
}

template <typename T>
void reduce_scatter(const Case& c, const Rows& rows, std::int64_t width, int salt, bool in_place) {
  const std::int64_t begin = rows_before(rows, c.group.rank()), own = rows_of(rows, c.group.rank());
  const Tensor input = make<T>(c.allocator, {rows_before(rows, c.size()), width}, c.me(), 0, salt);
  Tensor output = in_place ? input.slice(0, begin, begin + own)
                           : Tensor::empty(c.allocator, {own, width}, DTypeOf<T>::value, MemoryKind::communication);
  output = c.group.reduce_scatter(input, rows, output, "reduce_scatter").wait();
  for (std::int64_t i = 0; i < own * width; ++i)
    expect_bits(output.data<T>()[i], expected_sum<T>(c.group.members(), begin * width + i, salt), "reduce_scatter", i);
}

template <typename T>
void all_gather(const Case& c, const Rows& rows, std::int64_t width, int salt, bool in_place) {
  const std::int64_t begin = rows_before(rows, c.group.rank()), own = rows_of(rows, c.group.rank());
  Tensor output =
      Tensor::zeros(c.allocator, {rows_before(rows, c.size()), width}, DTypeOf<T>::value, MemoryKind::communication);
  Tensor input = in_place ? output.slice(0, begin, begin + own)
                          : Tensor::empty(c.allocator, {own, width}, DTypeOf<T>::value, MemoryKind::communication);
  for (std::int64_t i = 0; i < own * width; ++i) input.data<T>()[i] = value<T>(c.me(), i, salt);
  output = c.group.all_gather(input, rows, output, "all_gather").wait();
  for (int r = 0; r < c.size(); ++r)
    for (std::int64_t i = 0; i < rows_of(rows, r) * width; ++i)
      expect_bits(output.data<T>()[rows_before(rows, r) * width + i], value<T>(c.global(r), i, salt), "all_gather", i);
}

/// Rank s sends (s + 2·d + salt) mod 4 times `scale` rows to rank d.
template <typename T>
void all_to_all(const Case& c, std::int64_t scale, std::int64_t width, int salt) {
  const auto rows_from_to = [&](int s, int d) { return std::int64_t{(s + 2 * d + salt) % 4} * scale; };
  Rows sent, received;
  for (int q = 0; q < c.size(); ++q) {
    sent.push_back(rows_from_to(c.group.rank(), q));
    received.push_back(rows_from_to(q, c.group.rank()));
  }
  const Tensor input = make<T>(c.allocator, {rows_before(sent, c.size()), width}, c.me(), 0, salt);
  Tensor output = Tensor::empty(c.allocator, {rows_before(received, c.size()), width}, DTypeOf<T>::value,
                                MemoryKind::communication);
  output = c.group.all_to_all(input, sent, received, output, "all_to_all").wait();
  std::int64_t at = 0;
  for (int s = 0; s < c.size(); ++s) {
    std::int64_t first = 0;
    for (int d = 0; d < c.group.rank(); ++d) first += rows_from_to(s, d) * width;
    for (std::int64_t i = 0; i < rows_of(received, s) * width; ++i, ++at)
      expect_bits(output.data<T>()[at], value<T>(c.global(s), first + i, salt), "all_to_all", at);
  }
}

template <typename T>
void broadcast(const Case& c, std::int64_t count, int salt) {
  for (int root = 0; root < c.size(); ++root) {
    Tensor t = make<T>(c.allocator, {count}, c.me(), 0, salt + root);
    t = c.group.broadcast(std::move(t), root, "broadcast").wait();
    for (std::int64_t i = 0; i < count; ++i)
      expect_bits(t.data<T>()[i], value<T>(c.global(root), i, salt + root), "broadcast", i);
  }
}

/// Everybody sends to everybody, all at once, then receives; two messages per pair keep their order.
template <typename T>
void messages(const Case& c, std::int64_t count, int salt, bool receive_first) {
  std::vector<Pending<Tensor>> receives, sends;
  std::vector<std::pair<int, int>> from;
  const auto post_receives = [&] {
    for (int m = 0; m < 2; ++m)
      for (int q = 0; q < c.size(); ++q) {
        if (q == c.group.rank()) continue;
        Tensor into = Tensor::zeros(c.allocator, {count}, DTypeOf<T>::value, MemoryKind::communication);
        receives.push_back(c.group.receive(into, q, str_cat("message ", m)));
        from.emplace_back(q, m);
      }
  };
  if (receive_first) post_receives();
  for (int m = 0; m < 2; ++m)
    for (int q = 0; q < c.size(); ++q) {
      if (q == c.group.rank()) continue;
      Tensor t = make<T>(c.allocator, {count}, c.me(), 0, salt + 10 * m + q);
      Pending<Tensor> pending = c.group.send(std::move(t), q, str_cat("message ", m));
      if ((q + m) % 2 == 0) {
        sends.push_back(std::move(pending));
        continue;
      }
      // After wait() the tensor is ours again.
      Tensor own = pending.wait();
      std::memset(own.view().pointer, 0xEE, static_cast<std::size_t>(own.bytes()));
    }
  if (!receive_first) post_receives();
  for (std::size_t i = 0; i < receives.size(); ++i) {
    Tensor got = receives[i].wait();
    const auto [q, m] = from[i];
    for (std::int64_t k = 0; k < count; ++k)
      expect_bits(got.data<T>()[k], value<T>(c.global(q), k, salt + 10 * m + c.group.rank()), "message", k);
  }
}

/// Eight operations of different kinds at once, waited for in another order than posted.
inline void several_outstanding(const Case& c, std::int64_t count, int salt) {
  std::vector<Pending<Tensor>> pending;
  const Rows ones(static_cast<std::size_t>(c.size()), 1);
  for (int i = 0; i < 4; ++i) {
    pending.push_back(
        c.group.all_reduce(make<float>(c.allocator, {count}, c.me(), 0, salt + i), ReduceOp::sum, "outstanding"));
    Tensor output = Tensor::zeros(c.allocator, {c.size(), count}, DType::float32, MemoryKind::communication);
    pending.push_back(
        c.group.all_gather(make<float>(c.allocator, {1, count}, c.me(), 0, salt + i), ones, output, "outstanding"));
  }
  for (int i = 3; i >= 0; --i) {
    Tensor gathered = pending[static_cast<std::size_t>(2 * i + 1)].wait();
    Tensor sum = pending[static_cast<std::size_t>(2 * i)].wait();
    for (std::int64_t k = 0; k < count; ++k) {
      expect_bits(sum.data<float>()[k], expected_sum<float>(c.group.members(), k, salt + i), "outstanding sum", k);
      for (int r = 0; r < c.size(); ++r)
        expect_bits(gathered.data<float>()[r * count + k], value<float>(c.global(r), k, salt + i), "outstanding", k);
    }
  }
}

/// A Pending that is dropped still completes, and its tensors stay alive until then.
inline void dropped(const Case& c, int salt) {
  { c.group.all_reduce(make<float>(c.allocator, {5000}, c.me(), 0, salt), ReduceOp::sum, "dropped"); }
  const int next = (c.group.rank() + 1) % c.size(), previous = (c.group.rank() + c.size() - 1) % c.size();
  if (c.size() > 1) {
    { c.group.send(make<float>(c.allocator, {70000}, c.me(), 0, salt), next, "dropped send"); }
    // Memory of the size just let go, to be overwritten if it had been freed.
    Tensor other = Tensor::zeros(c.allocator, {70000}, DType::float32, MemoryKind::communication);
    Tensor into = Tensor::zeros(c.allocator, {70000}, DType::float32, MemoryKind::communication);
    into = c.group.receive(into, previous, "dropped send").wait();
    for (std::int64_t i = 0; i < into.numel(); ++i)
      expect_bits(into.data<float>()[i], value<float>(c.global(previous), i, salt), "dropped send", i);
  }
  c.group.barrier("dropped");
}

template <typename T>
void one_type(const Case& c, std::int64_t count, int salt) {
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min}) all_reduce<T>(c, count, op, salt);
  for (const bool in_place : {false, true}) {
    const Rows uneven = uneven_rows(c.size(), count / 8 + 1, salt);
    const Rows equal(static_cast<std::size_t>(c.size()), count / 5 + 1);
    reduce_scatter<T>(c, uneven, 5, salt + 1, in_place);
    reduce_scatter<T>(c, equal, 3, salt + 2, in_place);
    all_gather<T>(c, uneven, 5, salt + 3, in_place);
    all_gather<T>(c, equal, 3, salt + 4, in_place);
  }
  all_to_all<T>(c, count / 16 + 1, 3, salt + 5);
  broadcast<T>(c, count, salt + 6);
  for (const bool receive_first : {false, true}) messages<T>(c, count, salt + 7, receive_first);
}

inline void group_cases(const Case& c, std::int64_t large) {
  for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{300}, large}) {
    one_type<float>(c, count, 100);
    if (count == large) continue;
    one_type<double>(c, count, 200);
    one_type<BFloat16>(c, count, 210);
    one_type<Float16>(c, count, 220);
    one_type<std::int64_t>(c, count, 300);
  }
  // All rows zero, on every rank.
  const Rows none(static_cast<std::size_t>(c.size()), 0);
  reduce_scatter<float>(c, none, 4, 1, false);
  all_gather<float>(c, none, 4, 2, false);
  several_outstanding(c, 10, 400);
  several_outstanding(c, large / 4, 500);
  dropped(c, 600);
  c.group.barrier("end of cases");
}

/// Bytes counted for one operation of each kind must follow the formulas of world.h.
inline void traffic(RankContext& rank, Communicator& group, tensor::Allocator& allocator) {
  const std::int64_t n = group.size();
  const auto& bytes = rank.traffic().bytes;
  const auto counted = [&](const char* operation) {
    const auto it = bytes.find(group.name());
    if (it == bytes.end()) return std::int64_t{0};
    const auto found = it->second.find(operation);
    return found == it->second.end() ? std::int64_t{0} : found->second;
  };
  const auto expect = [&](const char* operation, std::int64_t want) {
    if (counted(operation) != want)
      throw Error(str_cat("conformance: traffic of ", operation, " is ", counted(operation), ", not ", want));
  };
  const auto floats = [&](const Shape& shape) {
    return Tensor::zeros(allocator, shape, DType::float32, MemoryKind::communication);
  };
  Rows rows, sent;
  for (int r = 0; r < group.size(); ++r) rows.push_back(r + 1), sent.push_back(2);
  const std::int64_t total = rows_before(rows, group.size()), own = rows_of(rows, group.rank());
  group.all_reduce(floats({101}), ReduceOp::sum, "traffic").wait();
  expect("all_reduce", 2 * (n - 1) * 404 / n);
  group.reduce_scatter(floats({total, 7}), rows, floats({own, 7}), "traffic").wait();
  expect("reduce_scatter", (n - 1) * total * 28 / n);
  group.all_gather(floats({own, 7}), rows, floats({total, 7}), "traffic").wait();
  expect("all_gather", (n - 1) * total * 28 / n);
  group.all_to_all(floats({2 * n, 7}), sent, sent, floats({2 * n, 7}), "traffic").wait();
  expect("all_to_all", 2 * (n - 1) * 28);
  group.broadcast(floats({10}), 0, "traffic").wait();
  expect("broadcast", group.rank() == 0 ? (n - 1) * 40 : 0);
  group.barrier("traffic");
  expect("barrier", 0);
}

/// Everything: the whole world, halves of it, and groups of one, all in use one after the other.
inline void run_all(RankContext& rank, std::int64_t large) {
  const auto allocator = tensor::Allocator::create(Device::cpu);
  std::vector<int> everyone(static_cast<std::size_t>(rank.world_size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto world = rank.create_group("world", everyone);
  traffic(rank, *world, *allocator);
  group_cases({rank, *world, *allocator}, large);
  const auto alone = rank.create_group("alone", {rank.rank()});
  group_cases({rank, *alone, *allocator}, large);
  if (rank.world_size() > 2) {
    std::vector<int> same_parity;
    for (const int r : everyone)
      if (r % 2 == rank.rank() % 2) same_parity.push_back(r);
    const auto half = rank.create_group("half", same_parity);
    const auto again = rank.create_group("half", same_parity);
    group_cases({rank, *half, *allocator}, 1500);
    group_cases({rank, *again, *allocator}, 1500);
  }
  world->barrier("end");
}

}  // namespace megatron::comm::conformance
