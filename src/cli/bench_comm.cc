// megatron bench comm: collectives of thread ranks beside what shared memory allows.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/bench.h"
#include "comm/bench.h"
#include "train/machine.h"

namespace megatron::cli {

namespace {

constexpr int kFewRanks = 8, kRanksPerCore = 4;

}  // namespace

int bench_comm(Arguments args) {
  const std::vector<std::int64_t> bytes = {4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB, 64 * kMiB};
  BenchNumbers numbers(args, {{"--world-size", 2}, {"--repeats", 20}});
  const auto n = static_cast<int>(numbers.at("--world-size"));
  if (n < 2) throw ConfigError(str_cat("--world-size ", n, ": collectives need at least 2 ranks"));
  const int most = std::max(kFewRanks, kRanksPerCore * train::usable_cores());
  if (n > most)
    throw ConfigError(
        str_cat("--world-size ", n, ": at most ", most, " thread ranks on ", train::usable_cores(),
                " usable cores; more of them would measure how threads wait for a core; nearest: ", most));
  // Two tensors of the largest size per rank, and what empties the caches.
  const std::int64_t needed = n * 2 * bytes.back() + kGiB / 2, available = train::available_memory_bytes();
  if (needed > available)
    throw Error(str_cat("out of memory: the tensors of ", n, " ranks have ", format_bytes(needed),
                        "; this machine has ", format_bytes(available), " available"));
  for (const comm::CommTiming& t : comm::bench_collectives(n, bytes, static_cast<int>(numbers.at("--repeats"))))
    print_bench(nlohmann::ordered_json{{"operation", t.operation},
                                       {"world_size", n},
                                       {"bytes", t.bytes},
                                       {"seconds", t.seconds},
                                       {"limit_seconds", t.limit_seconds},
                                       {"median_seconds", t.median_seconds},
                                       {"median_limit_seconds", t.median_limit_seconds},
                                       {"bytes_per_second", static_cast<double>(t.bytes) / t.seconds},
                                       {"ratio_to_limit", t.limit_seconds / t.seconds}},
                numbers.json());
  return 0;
}

}  // namespace megatron::cli
