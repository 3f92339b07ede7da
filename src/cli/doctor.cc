// megatron doctor: what this build has, what this machine offers, and whether ranks can talk to each other here.
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <vector>

#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "comm/world.h"
#include "kernels/executor.h"
#include "kernels/isa.h"
#include "kernels/peak.h"
#include "train/machine.h"

namespace megatron::cli {
namespace {

std::string compiler() {
#if defined(__clang__)
  return str_cat("clang ", __clang_major__, ".", __clang_minor__);
#else
  return str_cat("g++ ", __GNUC__, ".", __GNUC_MINOR__);
#endif
}

void line(const char* name, const std::string& text) { std::printf("%-14s %s\n", name, text.c_str()); }

std::string mpi_text() {
  for (const char* name : {"libmpi.so.40", "libmpi.so.12", "libmpi.so"}) {
    void* const library = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (library != nullptr) return str_cat(name, " is loaded");
    // It stays mapped: an MPI library is not made to be unloaded.
    void* const found = dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (found == nullptr) continue;
    dlclose(found);
    return str_cat(name, " found: mpirun and srun can start this program");
  }
  return "not found (libopenmpi3 or mpich): ranks can only be threads of one process";
}

/// Sums, gathers and messages among `n` thread ranks against what they must give; the time of one small sum.
std::string collective_test(int n) {
  comm::WorldOptions options;
  options.world_size = n;
  options.timeout_seconds = 20;
  double microseconds = 0;
  comm::create_local_world(options)->run([&](comm::RankContext& context) {
    std::vector<int> members(static_cast<std::size_t>(n));
    std::iota(members.begin(), members.end(), 0);
    const auto group = context.create_group("doctor", members);
    const auto allocator = tensor::Allocator::create(Device::cpu);
    const auto full = [&](std::int64_t count, float value) {
      Tensor tensor = Tensor::empty(*allocator, {count}, DType::float32, MemoryKind::communication);
      std::fill_n(tensor.data<float>(), count, value);
      return tensor;
    };
    const int rank = context.rank();
    const double start = train::monotonic_seconds();
    for (int round = 0; round < 100; ++round) {
      const Tensor sum =
          group->all_reduce(full(1000, static_cast<float>(rank + 1)), comm::ReduceOp::sum, "doctor.sum").wait();
      MEGATRON_CHECK_EQ(sum.data<float>()[999], static_cast<float>(n * (n + 1)) / 2, "sum of the ranks");
    }
    if (rank == 0) microseconds = 1e4 * (train::monotonic_seconds() - start);
    const std::vector<std::int64_t> rows(static_cast<std::size_t>(n), 10);
    const Tensor all =
        group->all_gather(full(10, static_cast<float>(rank)), rows, full(10 * n, -1.0F), "doctor.gather").wait();
    for (int r = 0; r < n; ++r)
      MEGATRON_CHECK_EQ(all.data<float>()[10 * r + 9], static_cast<float>(r), "part of rank ", r);
    auto sent = group->send(full(5, static_cast<float>(rank)), (rank + 1) % n, "doctor.ring");
    const Tensor got = group->receive(full(5, -1.0F), (rank + n - 1) % n, "doctor.ring").wait();
    sent.wait();
    MEGATRON_CHECK_EQ(got.data<float>()[4], static_cast<float>((rank + n - 1) % n), "message round the ring");
  });
  char text[120];
  std::snprintf(text, sizeof text, "%d thread ranks: sum, gather and messages are right; a small sum takes %.0f us", n,
                microseconds);
  return text;
}

}  // namespace

int run_doctor(Arguments args) {
  if (!args.empty()) throw ConfigError("doctor takes no options, given " + args[0]);
  line("build", str_cat(program_version(), ", ", compiler(),
#ifdef NDEBUG
                        ", release"
#else
                        ", debug"
#endif
                        ));
  line("processor", train::processor_name());
  line("cores", str_cat(train::usable_cores(), " usable (affinity and control-group quota)"));
  line("vector code", str_cat(kernels::current_isa(), " in use; supported: ", joined(kernels::supported_isas(), ", ")));
  line("bf16 products", str_cat(kernels::uses_pair_instruction() ? "pairs by instruction: " : "widened to float32: ",
                                kernels::pair_instruction_reason()));
  line("memory", str_cat(format_bytes(train::total_memory_bytes()), ", available ",
                         format_bytes(train::available_memory_bytes())));
  line("MPI", mpi_text());
  if (const int launched = comm::launcher_world_size(); launched > 0)
    line("launcher", str_cat("started ", launched, " processes"));
  kernels::Executor exec(tensor::Allocator::create(Device::cpu), train::usable_cores());
  char rate[100];
  std::snprintf(rate, sizeof rate, "%.1f GFLOP/s in float32, %.1f in bfloat16 on all cores",
                1e-9 * kernels::matmul_peak_within(exec, 0.5),
                1e-9 * kernels::matmul_peak_within(exec, 0.5, DType::bfloat16));
  line("matmul", rate);
  line("collectives", collective_test(4));
  return 0;
}

}  // namespace megatron::cli
