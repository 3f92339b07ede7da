// What the benchmarks of `megatron bench` share: their options, and how they print.
#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "cli/command.h"

namespace megatron::cli {

/// "--name value" pairs, flags and "--json", for the benchmarks that have a handful of numbers.
class BenchNumbers {
 public:
  /// `defaults`: the names that are known. Throws ConfigError for another name, or a value that is no whole number in
  /// its range: that of a run's option of the name, else from 1 to 10000 (repeats) or 2³² (others).
  BenchNumbers(Arguments args, std::vector<std::pair<std::string, std::int64_t>> defaults,
               std::vector<std::string> flags = {});
  std::int64_t& at(const std::string& name);
  bool json() const { return json_; }
  bool given(const std::string& flag) const;

 private:
  std::vector<std::pair<std::string, std::int64_t>> values_;
  std::vector<std::string> flags_, given_;
  bool json_ = false;
};

/// One JSON line, or one "key value" line per entry. (A template, so that this header needs no JSON library.)
template <typename Json>
void print_bench(const Json& json, bool as_json) {
  if (as_json) {
    std::printf("%s\n", json.dump().c_str());
    return;
  }
  for (const auto& [key, value] : json.items()) std::printf("%-30s %s\n", key.c_str(), value.dump().c_str());
}

/// FLOP/s of the best of oneDNN's square products of `type` on so many threads, of the sizes and repetitions of `bench
/// step`'s own peak; 0 without oneDNN.
double library_matmul_peak(std::int64_t threads, DType type);

int bench_step(Arguments args);
int bench_matmul(Arguments args);
int bench_attention(Arguments args);
int bench_optimizer(Arguments args);
int bench_comm(Arguments args);
int bench_data(Arguments args);
int bench_index(Arguments args);

}  // namespace megatron::cli
