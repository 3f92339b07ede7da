// megatron bench step|matmul|attention|comm|data|index|optimizer: how fast this build is on this machine.
#include "cli/bench.h"

#include <algorithm>
#include <cstdio>

#include "config/option_table.h"
#include "config/text_value.h"

namespace megatron::cli {
namespace {

constexpr const char* kUsage =
    "usage: megatron bench step --preset gpt2-124m|gpt2-124m-s1024|tiny [--arch gpt2|llama] [--steps N] [--warmup N]\n"
    "                           [--num-micro-batches M] [--quick-peak] [--profile] [--trace FILE] [--json]\n"
    "                           [any option of megatron train: --seq-length, --micro-batch-size, --world-size,\n"
    "                            --threads-per-rank, --tensor-model-parallel-size, …]\n"
    "       megatron bench matmul [--m M --n N --k K] [--bf16|--fp16] [--threads-per-rank T] [--json]\n"
    "       megatron bench attention [--seq-length S --heads H --groups G --head-size D --batch B] [--threads-per-rank "
    "T] [--json]\n"
    "       megatron bench optimizer [--parameters P] [--threads-per-rank T] [--json]\n"
    "       megatron bench comm [--world-size N] [--repeats R] [--json]\n"
    "       megatron bench data --tokenizer-type TYPE [tokenizer options] --input FILE [--threads N] [--megabytes M]\n"
    "                           [--json]   (megatron tokenize --help lists the tokenizer options)\n"
    "       megatron bench index [--tokens N] [--document-tokens MEAN] [--seq-length S] [--epochs E] [--json]\n\n"
    "Options of a run are in `megatron options`.";

constexpr std::int64_t kMostRepeats = 10000, kMostElements = std::int64_t{1} << 32;

struct Range {
  std::int64_t least, most;
};

/// Of an option that runs have too, theirs.
Range range_of(const std::string& name) {
  const config::OptionTable table;
  if (const config::Option* option = table.find(name); option != nullptr && option->min && option->max)
    return {static_cast<std::int64_t>(*option->min), static_cast<std::int64_t>(*option->max)};
  return {1, name == "--repeats" ? kMostRepeats : kMostElements};
}

}  // namespace

BenchNumbers::BenchNumbers(Arguments args, std::vector<std::pair<std::string, std::int64_t>> defaults,
                           std::vector<std::string> flags)
    : values_(std::move(defaults)), flags_(std::move(flags)) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::size_t equals = args[i].find('=');
    const std::string name = args[i].substr(0, equals);
    if (args[i] == "--json") {
      json_ = true;
      continue;
    }
    if (std::find(flags_.begin(), flags_.end(), args[i]) != flags_.end()) {
      given_.push_back(args[i]);
      continue;
    }
    std::int64_t& value = at(name);
    if (equals == std::string::npos && i + 1 == args.size()) throw ConfigError(name + ": a value is missing");
    const std::string text = equals == std::string::npos ? args[++i] : args[i].substr(equals + 1);
    const auto number = config::parse_integer(text);
    const Range range = range_of(name);
    if (!number.has_value() || *number < range.least || *number > range.most)
      throw ConfigError(str_cat(name, " ", text, ": must be a whole number from ", range.least, " to ", range.most));
    value = *number;
  }
}

std::int64_t& BenchNumbers::at(const std::string& name) {
  for (auto& [known, value] : values_)
    if (known == name) return value;
  std::string names;
  for (const auto& [known, value] : values_) names += " " + known;
  for (const std::string& flag : flags_) names += " " + flag;
  throw ConfigError(name + ": unknown; known are" + names + " --json");
}

bool BenchNumbers::given(const std::string& flag) const {
  return std::find(given_.begin(), given_.end(), flag) != given_.end();
}

int run_bench(Arguments args) {
  const auto is_help = [](const std::string& arg) { return arg == "--help" || arg == "-h"; };
  if (std::any_of(args.begin(), args.end(), is_help)) return std::puts(kUsage), 0;
  const std::string what = args.empty() ? "" : args[0];
  const Arguments rest = args.empty() ? args : args.subspan(1);
  if (what == "step") return bench_step(rest);
  if (what == "matmul") return bench_matmul(rest);
  if (what == "attention") return bench_attention(rest);
  if (what == "optimizer") return bench_optimizer(rest);
  if (what == "comm") return bench_comm(rest);
  if (what == "data") return bench_data(rest);
  if (what == "index") return bench_index(rest);
  std::fprintf(stderr, "%s\n", kUsage);
  return 2;
}

}  // namespace megatron::cli
