// What the processes of the MPI tests run. Disabled as tests of their own: mpirun starts this program with one of them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "comm/conformance.h"
#include "comm/operations.h"
#include "comm/world.h"

namespace megatron::comm {
namespace {

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Runs `fn` as `megatron` would and ends the process with the status of design §7.
[[noreturn]] void run_as_process(const std::function<void(RankContext&)>& fn) {
  WorldOptions options;
  options.world_size = launcher_world_size();
  options.faults = parse_fault_plan(setting("MEGATRON_TEST_FAULTS"));
  if (!setting("MEGATRON_TEST_TIMEOUT").empty()) options.timeout_seconds = std::stod(setting("MEGATRON_TEST_TIMEOUT"));
  int status = 0;
  try {
    const auto world = create_mpi_world(options);
    world->run(fn);
  } catch (const ConfigError&) {
    status = 2;
  } catch (const CommError&) {
    status = 3;
  } catch (const std::exception&) {
    status = 1;
  }
  std::printf("process ends with status %d\n", status);
  std::fflush(stdout);
  std::exit(status);
}

TEST(MpiBody, DISABLED_Conformance) {
  run_as_process([](RankContext& rank) {
    if (rank.ranks_on_this_machine() != rank.world_size()) throw Error("ranks on this machine");
    conformance::run_all(rank, 30000);
    std::printf("rank %d of %d conforms\n", rank.rank(), rank.world_size());
  });
}

// A loop of steps that prints where it is; faults come from MEGATRON_TEST_FAULTS.
TEST(MpiBody, DISABLED_Loop) {
  run_as_process([](RankContext& rank) {
    std::vector<int> everyone(static_cast<std::size_t>(rank.world_size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    const auto allocator = tensor::Allocator::create(Device::cpu);
    const auto group = rank.create_group("dp", everyone);
    const int steps = setting("MEGATRON_TEST_STEPS").empty() ? 20 : std::stoi(setting("MEGATRON_TEST_STEPS"));
    for (int step = 0; step < steps; ++step) {
      rank.note_progress("step", step);
      Tensor t = Tensor::zeros(*allocator, {100000}, DType::float32, MemoryKind::gradient);
      group->all_reduce(t, ReduceOp::sum, "grads").wait();
      std::printf("rank %d did step %d\n", rank.rank(), step);
      std::fflush(stdout);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
}

// Reports the time of small and large operations; nothing is asserted about it.
TEST(MpiBody, DISABLED_Speed) {
  run_as_process([](RankContext& rank) {
    std::vector<int> everyone(static_cast<std::size_t>(rank.world_size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    const auto allocator = tensor::Allocator::create(Device::cpu);
    const auto group = rank.create_group("dp", everyone);
    for (const std::int64_t count : {std::int64_t{16}, std::int64_t{4096}, std::int64_t{1} << 22}) {
      Tensor t = Tensor::zeros(*allocator, {count}, DType::float32, MemoryKind::gradient);
      const int rounds = count > 100000 ? 10 : 300;
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < rounds; ++i) t = group->all_reduce(t, ReduceOp::sum, "speed").wait();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (rank.rank() == 0)
        std::printf("all_reduce of %lld floats: %.1f us\n", (long long)count, seconds / rounds * 1e6);
    }
  });
}

}  // namespace
}  // namespace megatron::comm
