#include "comm/bench.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <span>

#include "base/clock.h"
#include "base/median.h"
#include "base/units.h"
#include "comm/world.h"
#include "kernels/tree_sum.h"

namespace megatron::comm {

namespace {

using kernels::Stores;

constexpr std::int64_t kColdBytes = 16 * kMiB, kBatchBytes = 256 * kKiB, kMostSets = 64;
constexpr std::int64_t kEvictBytes = 256 * kMiB;  // written by all ranks together: several times the caches

/// One rank's tensors for one size.
struct Buffers {
  Tensor whole, result, part;  // [n·rows, 16], the same, [rows, 16]
};

/// What the threads of one measurement share. Each rank writes its own entries between two barriers.
struct Shared {
  std::vector<Clock::time_point> starts, ends;
  std::vector<std::vector<Buffers>*> sets;  // by rank
};

class Measurement {
 public:
  Measurement(Communicator& group, Shared& shared, tensor::Allocator& allocator, std::int64_t bytes, int repeats)
      : group_(group), shared_(shared), n_(group.size()), me_(group.rank()), repeats_(repeats) {
    constexpr std::int64_t kRowElements = 16;
    const std::int64_t rows = std::max<std::int64_t>(1, ceil_div(bytes, n_ * kRowElements * 4));
    cold_ = bytes >= kColdBytes;
    sets_.resize(static_cast<std::size_t>(cold_ ? 1 : std::clamp<std::int64_t>(kBatchBytes / bytes, 1, kMostSets)));
    rows_.assign(static_cast<std::size_t>(n_), rows);
    part_ = rows * kRowElements;
    const auto make = [&](std::int64_t r) {
      return Tensor::empty(allocator, {r, kRowElements}, DType::float32, MemoryKind::communication);
    };
    for (Buffers& b : sets_) b = {make(n_ * rows), make(n_ * rows), make(rows)};
    if (cold_) evict_ = make(kEvictBytes / (n_ * kRowElements * 4));
    shared_.sets[static_cast<std::size_t>(me_)] = &sets_;
    fill();
    group_.barrier("bench buffers");
  }
  ~Measurement() { group_.barrier("bench buffers end"); }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  std::vector<CommTiming> run();

 private:
  using Work = std::function<void(std::size_t set)>;
  using Limit = std::function<void(std::size_t set, Stores stores)>;

  void fill() {
    for (Buffers& b : sets_)
      for (Tensor* tensor : {&b.result, &b.whole, &b.part}) std::fill_n(tensor->data<float>(), tensor->numel(), 0.0F);
  }
  float* whole(int rank, std::size_t set) const { return data(rank, set).whole.data<float>(); }
  Buffers& data(int rank, std::size_t set) const { return (*shared_.sets[static_cast<std::size_t>(rank)])[set]; }
  double once(const Work& work);
  CommTiming take_turns(const char* operation, const Work& work, const Limit& limit);
  void sum_part(std::size_t set, std::span<void* const> outputs, Stores stores) const;

  Communicator& group_;
  Shared& shared_;
  int n_, me_, repeats_;
  std::vector<Buffers> sets_;
  std::vector<std::int64_t> rows_;
  std::int64_t part_ = 0;  // elements
  bool cold_ = false;
  Tensor evict_;
};

// The time of one piece of work on all ranks at once, the same on every rank.
double Measurement::once(const Work& work) {
  if (cold_)
    std::fill_n(evict_.data<float>(), evict_.numel(), 0.0F);
  else
    fill();
  const auto me = static_cast<std::size_t>(me_);
  group_.barrier("bench start");
  shared_.starts[me] = Clock::now();
  for (std::size_t set = 0; set < sets_.size(); ++set) work(set);
  shared_.ends[me] = Clock::now();
  group_.barrier("bench end");
  const auto start = *std::min_element(shared_.starts.begin(), shared_.starts.end());
  const auto end = *std::max_element(shared_.ends.begin(), shared_.ends.end());
  group_.barrier("bench read");
  const double seconds = std::chrono::duration<double>(end - start).count();
  return seconds / static_cast<double>(sets_.size());
}

CommTiming Measurement::take_turns(const char* operation, const Work& work, const Limit& limit) {
  std::vector<double> times, plain, streaming;
  for (int i = 0; i < repeats_; ++i) {
    times.push_back(once(work));
    plain.push_back(once([&](std::size_t set) { limit(set, Stores::cached); }));
    streaming.push_back(once([&](std::size_t set) { limit(set, Stores::streaming); }));
  }
  const auto best = [](const std::vector<double>& t) { return *std::min_element(t.begin(), t.end()); };
  const std::int64_t bytes = n_ * part_ * static_cast<std::int64_t>(sizeof(float));
  return {operation,     bytes,
          best(times),   std::min(best(plain), best(streaming)),
          median(times), std::min(median(plain), median(streaming))};
}

// This rank's part of all tensors, added into that part of `outputs`.
void Measurement::sum_part(std::size_t set, std::span<void* const> outputs, Stores stores) const {
  std::vector<const void*> inputs;
  for (int r = 0; r < n_; ++r) inputs.push_back(whole(r, set) + me_ * part_);
  kernels::tree_reduce(ReduceOp::sum, DType::float32, inputs, outputs, part_, stores);
}

std::vector<CommTiming> Measurement::run() {
  const std::int64_t part_bytes = part_ * static_cast<std::int64_t>(sizeof(float));
  std::vector<CommTiming> timings;
  timings.push_back(take_turns(
      "all_reduce", [&](std::size_t set) { group_.all_reduce(sets_[set].whole, ReduceOp::sum, "bench").wait(); },
      [&](std::size_t set, Stores stores) {
        std::vector<void*> outputs;
        for (int r = 0; r < n_; ++r) outputs.push_back(whole(r, set) + me_ * part_);
        sum_part(set, outputs, stores);
      }));
  timings.push_back(take_turns(
      "reduce_scatter",
      [&](std::size_t set) { group_.reduce_scatter(sets_[set].whole, rows_, sets_[set].part, "bench").wait(); },
      [&](std::size_t set, Stores stores) {
        void* const own = sets_[set].part.data<float>();
        sum_part(set, {&own, 1}, stores);
      }));
  timings.push_back(take_turns(
      "all_gather",
      [&](std::size_t set) { group_.all_gather(sets_[set].part, rows_, sets_[set].result, "bench").wait(); },
      [&](std::size_t set, Stores stores) {
        for (int r = 0; r < n_; ++r)
          kernels::copy_bytes(data(r, set).part.data<float>(), sets_[set].result.data<float>() + r * part_, part_bytes,
                              stores);
      }));
  timings.push_back(take_turns(
      "send",
      [&](std::size_t set) {
        if (me_ == 0) group_.send(sets_[set].whole, 1, "bench").wait();
        if (me_ == 1) group_.receive(sets_[set].result, 0, "bench").wait();
      },
      [&](std::size_t set, Stores stores) {
        if (me_ == 1) kernels::copy_bytes(whole(0, set), sets_[set].result.data<float>(), n_ * part_bytes, stores);
      }));
  return timings;
}

// Binds the calling thread to the usable core number `rank`, where there is one for each of `ranks` threads.
void bind_to_own_core(int rank, int ranks) {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof(usable), &usable) != 0 || CPU_COUNT(&usable) < ranks) return;
  int core = 0;
  for (int seen = -1; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &usable) && ++seen == rank) break;
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(core, &own);
  ::sched_setaffinity(0, sizeof(own), &own);
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
  shared.sets.resize(everyone.size());
  std::vector<CommTiming> timings;
  create_local_world(options)->run([&](RankContext& rank) {
    bind_to_own_core(rank.rank(), world_size);
    const auto allocator = tensor::Allocator::create(Device::cpu);
    const auto group = rank.create_group("bench", everyone);
    for (const std::int64_t size : bytes) {
      const auto measured = Measurement(*group, shared, *allocator, size, repeats).run();
      if (rank.rank() == 0) timings.insert(timings.end(), measured.begin(), measured.end());
    }
  });
  return timings;
}

}  // namespace megatron::comm
