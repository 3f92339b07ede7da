#include "comm/bench.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "base/units.h"
#include "comm/world.h"
#include "kernels/tree_sum.h"

namespace megatron::comm {

namespace {

using Clock = std::chrono::steady_clock;

/// What the threads of one measurement share. Each rank writes its own entries between two barriers.
struct Shared {
  std::vector<Clock::time_point> starts, ends;
  std::vector<const float*> inputs;
  std::vector<float*> outputs;
};

/// One rank's tensors for one size.
struct Buffers {
  Tensor whole, result, part;  // [n·rows, 16], the same, [rows, 16]
  std::vector<std::int64_t> rows;
  std::int64_t part_elements = 0;
};

Buffers make_buffers(tensor::Allocator& allocator, int n, std::int64_t bytes) {
  constexpr std::int64_t kRowElements = 16;
  const std::int64_t rows = std::max<std::int64_t>(1, ceil_div(bytes, n * kRowElements * 4));
  Buffers b;
  b.rows.assign(static_cast<std::size_t>(n), rows);
  b.part_elements = rows * kRowElements;
  b.whole = Tensor::zeros(allocator, {n * rows, kRowElements}, DType::float32, MemoryKind::communication);
  b.result = Tensor::zeros(allocator, {n * rows, kRowElements}, DType::float32, MemoryKind::communication);
  b.part = Tensor::zeros(allocator, {rows, kRowElements}, DType::float32, MemoryKind::communication);
  return b;
}

// Adds [begin, begin + count) of all inputs in blocks that stay in the first cache, and hands each block on.
void plain_sum(const Shared& shared, std::int64_t begin, std::int64_t count,
               const std::function<void(std::int64_t at, const float* sum, std::int64_t n)>& out) {
  constexpr std::int64_t kBlock = 1024;
  float block[kBlock];
  std::vector<const void*> inputs(shared.inputs.size());
  for (std::int64_t done = 0; done < count; done += kBlock) {
    const std::int64_t n = std::min(kBlock, count - done);
    for (std::size_t r = 0; r < inputs.size(); ++r) inputs[r] = shared.inputs[r] + begin + done;
    kernels::tree_reduce(ReduceOp::sum, DType::float32, inputs, block, n);
    out(begin + done, block, n);
  }
}

void copy(float* to, const float* from, std::int64_t elements) {
  std::memcpy(to, from, static_cast<std::size_t>(elements) * sizeof(float));
}

/// Runs `work` on all ranks at once, `repeats` times; the best time, on every rank.
double measure(Communicator& group, Shared& shared, int repeats, const std::function<void()>& work) {
  const auto me = static_cast<std::size_t>(group.rank());
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < repeats; ++i) {
    group.barrier("bench start");
    shared.starts[me] = Clock::now();
    work();
    shared.ends[me] = Clock::now();
    group.barrier("bench end");
    const auto start = *std::min_element(shared.starts.begin(), shared.starts.end());
    const auto end = *std::max_element(shared.ends.begin(), shared.ends.end());
    best = std::min(best, std::chrono::duration<double>(end - start).count());
  }
  group.barrier("bench done");
  return best;
}

std::vector<CommTiming> measure_size(Communicator& group, Shared& shared, Buffers& b, int repeats) {
  const int n = group.size(), me = group.rank();
  const std::int64_t part = b.part_elements, bytes = b.whole.bytes();
  const auto all_parts = [&](const std::function<void(int)>& f) {
    for (int r = 0; r < n; ++r) f(r);
  };
  shared.inputs[static_cast<std::size_t>(me)] = b.whole.data<float>();
  shared.outputs[static_cast<std::size_t>(me)] = b.result.data<float>();
  std::vector<CommTiming> timings;
  const auto add = [&](const char* operation, const std::function<void()>& work, const std::function<void()>& limit) {
    const double seconds = measure(group, shared, repeats, work);
    timings.push_back({operation, bytes, seconds, measure(group, shared, repeats, limit)});
  };
  add(
      "all_reduce", [&] { group.all_reduce(b.whole, ReduceOp::sum, "bench").wait(); },
      [&] {
        plain_sum(shared, me * part, part, [&](std::int64_t at, const float* sum, std::int64_t count) {
          all_parts([&](int r) { copy(shared.outputs[static_cast<std::size_t>(r)] + at, sum, count); });
        });
      });
  add(
      "reduce_scatter", [&] { group.reduce_scatter(b.whole, b.rows, b.part, "bench").wait(); },
      [&] {
        float* own = b.part.data<float>();
        plain_sum(shared, me * part, part, [&](std::int64_t at, const float* sum, std::int64_t count) {
          copy(own + (at - me * part), sum, count);
        });
      });
  add(
      "all_gather", [&] { group.all_gather(b.part, b.rows, b.result, "bench").wait(); },
      [&] {
        float* own = b.result.data<float>();
        all_parts([&](int r) { copy(own + r * part, shared.inputs[static_cast<std::size_t>(r)] + r * part, part); });
      });
  add(
      "send",
      [&] {
        if (me == 0) group.send(b.whole, 1, "bench").wait();
        if (me == 1) group.receive(b.result, 0, "bench").wait();
      },
      [&] {
        if (me == 1) copy(b.result.data<float>(), shared.inputs[0], n * part);
      });
  return timings;
}

}  // namespace

std::vector<CommTiming> bench_collectives(int world_size, const std::vector<std::int64_t>& bytes, int repeats) {
  MEGATRON_CHECK_GE(world_size, 2, "a benchmark of communication needs two ranks");
  MEGATRON_CHECK_GE(repeats, 1);
  WorldOptions options;
  options.world_size = world_size;
  std::vector<int> everyone(static_cast<std::size_t>(world_size));
  std::iota(everyone.begin(), everyone.end(), 0);
  Shared shared;
  shared.starts.resize(everyone.size());
  shared.ends.resize(everyone.size());
  shared.inputs.resize(everyone.size());
  shared.outputs.resize(everyone.size());
  std::vector<CommTiming> timings;
  create_local_world(options)->run([&](RankContext& rank) {
    const auto allocator = tensor::Allocator::create(Device::cpu);
    const auto group = rank.create_group("bench", everyone);
    for (const std::int64_t size : bytes) {
      Buffers buffers = make_buffers(*allocator, world_size, size);
      const auto measured = measure_size(*group, shared, buffers, repeats);
      if (rank.rank() == 0) timings.insert(timings.end(), measured.begin(), measured.end());
      group->barrier("bench size");
    }
  });
  return timings;
}

}  // namespace megatron::comm
