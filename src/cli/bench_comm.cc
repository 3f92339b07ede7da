// megatron bench comm: collectives of thread ranks beside what shared memory allows.
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/bench.h"
#include "comm/bench.h"

namespace megatron::cli {

int bench_comm(Arguments args) {
  BenchNumbers numbers(args, {{"--world-size", 2}, {"--repeats", 20}});
  const auto n = static_cast<int>(numbers.at("--world-size"));
  if (n < 2) throw ConfigError(str_cat("--world-size ", n, ": collectives need at least 2 ranks"));
  const std::vector<std::int64_t> bytes = {4 * kKiB, 64 * kKiB, kMiB, 16 * kMiB, 64 * kMiB};
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
