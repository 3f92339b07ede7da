// megatron bench step: training steps of a preset on random tokens.
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/bench.h"
#include "cli/run_parsing.h"
#include "config/parse.h"
#include "config/presets.h"
#include "config/text_value.h"
#include "train/assemble.h"
#include "train/bench.h"

namespace megatron::cli {
namespace {

/// What `bench step` takes itself; everything else is an option of a run.
struct StepRequest {
  std::string preset = "tiny", arch = "gpt2";
  std::int64_t steps = 10, warmup = 2;
  bool json = false;
  std::vector<std::string> rest;

  explicit StepRequest(Arguments args) {
    for (std::size_t i = 0; i < args.size(); ++i) {
      const std::size_t equals = args[i].find('=');
      const std::string name = args[i].substr(0, equals);
      if (name == "--json") {
        json = true;
      } else if (name == "--preset" || name == "--arch" || name == "--steps" || name == "--warmup") {
        if (equals == std::string::npos && i + 1 == args.size()) throw ConfigError(name + ": a value is missing");
        take(name, equals == std::string::npos ? args[++i] : args[i].substr(equals + 1));
      } else {
        rest.push_back(args[i]);
      }
    }
  }

 private:
  void take(const std::string& name, const std::string& text) {
    if (name == "--preset") preset = text;
    if (name == "--arch") arch = text;
    if (name == "--steps") steps = count(name, text, 1);
    if (name == "--warmup") warmup = count(name, text, 0);
  }
  static std::int64_t count(const std::string& name, const std::string& text, std::int64_t least) {
    const auto number = config::parse_integer(text);
    if (!number.has_value() || *number < least)
      throw ConfigError(str_cat(name, " ", text, ": must be a whole number, at least ", least));
    return *number;
  }
};

/// What every measured step has, whatever its size.
constexpr const char* kStepSettings[] = {"--tokenizer-type",
                                         "NullTokenizer",
                                         "--make-vocab-size-divisible-by",
                                         "128",
                                         "--mock-data",
                                         "--hidden-dropout",
                                         "0",
                                         "--attention-dropout",
                                         "0",
                                         "--lr",
                                         "1e-4",
                                         "--lr-decay-style",
                                         "constant",
                                         "--adam-beta1",
                                         "0.9",
                                         "--adam-beta2",
                                         "0.95",
                                         "--weight-decay",
                                         "0.1",
                                         "--clip-grad",
                                         "1.0",
                                         "--eval-iters",
                                         "0",
                                         "--train-iters",
                                         "1"};

}  // namespace

int bench_step(Arguments args) {
  const StepRequest request(args);
  std::vector<std::string> preset = config::preset_args(request.preset, request.arch);
  preset.insert(preset.end(), std::begin(kStepSettings), std::end(kStepSettings));
  const config::ParsedRun parsed =
      config::parse_run(request.rest, {config::ParseMode::train, {}, launcher_size(), preset});
  config::require_accepted(parsed);
  print_notices(parsed);
  const train::BenchResult r = train::bench_step(parsed.spec, request.warmup, request.steps);
  if (!is_first_process()) return 0;
  print_bench(
      nlohmann::ordered_json{{"trainer", "megatron.cpp"},
                             {"preset", request.preset},
                             {"arch", request.arch},
                             {"world_size", parsed.spec.parallel.world_size},
                             {"threads_per_rank", r.threads_per_rank},
                             {"parameters", r.parameters},
                             {"tokens_per_step", r.tokens_per_step},
                             {"tokens_per_second", r.tokens_per_second},
                             {"step_seconds", r.step_seconds},
                             {"model_flops_per_second", r.model_flops_per_second},
                             {"matmul_peak_flops_per_second", r.matmul_peak_flops_per_second},
                             {"ratio_to_matmul_peak", r.model_flops_per_second / r.matmul_peak_flops_per_second},
                             {"seconds_to_first_step_end", r.seconds_to_first_step_end},
                             {"forward_seconds", r.forward_seconds},
                             {"backward_seconds", r.backward_seconds},
                             {"exposed_communication_seconds", r.exposed_seconds},
                             {"optimizer_seconds", r.optimizer_seconds},
                             {"peak_rss_bytes", r.peak_rss_bytes},
                             {"first_loss", r.first_loss},
                             {"last_loss", r.last_loss}},
      request.json);
  return 0;
}

}  // namespace megatron::cli
