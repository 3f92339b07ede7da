// megatron bench step: training steps of a preset on random tokens.
#include <algorithm>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/bench.h"
#include "cli/run_parsing.h"
#include "config/parse.h"
#include "config/presets.h"
#include "config/text_value.h"
#include "train/assemble.h"
#include "train/bench.h"
#include "train/output_file.h"
#include "train/step_profile.h"

namespace megatron::cli {
namespace {

/// What `bench step` takes itself; everything else is an option of a run.
struct StepRequest {
  std::string preset = "tiny", arch = "gpt2";
  std::int64_t steps = 10, warmup = 2;
  std::int64_t num_micro_batches = 0;  // of a step and data-parallel rank; 0: by the batch sizes
  bool json = false, profile = false, quick_peak = false;
  std::optional<std::string> trace;
  std::vector<std::string> rest;

  explicit StepRequest(Arguments args) {
    for (std::size_t i = 0; i < args.size(); ++i) {
      const std::size_t equals = args[i].find('=');
      const std::string name = args[i].substr(0, equals);
      if (name == "--json") {
        json = true;
      } else if (args[i] == "--profile") {
        profile = true;
      } else if (args[i] == "--quick-peak") {
        quick_peak = true;
      } else if (std::find(std::begin(kOwnLength), std::end(kOwnLength), name) != std::end(kOwnLength)) {
        throw ConfigError(name + ": bench step trains --warmup and then --steps steps and records those behind them");
      } else if (std::find(std::begin(kNoRun), std::end(kNoRun), name) != std::end(kNoRun)) {
        throw ConfigError(name + ": bench step trains fresh weights on random tokens, saves nothing and logs nothing");
      } else if (name == "--preset" || name == "--arch" || name == "--steps" || name == "--warmup" ||
                 name == "--trace" || name == "--num-micro-batches") {
        if (equals == std::string::npos && i + 1 == args.size()) throw ConfigError(name + ": a value is missing");
        take(name, equals == std::string::npos ? args[++i] : args[i].substr(equals + 1));
      } else {
        rest.push_back(args[i]);
      }
    }
  }

 private:
  /// Options of a run that would have no effect.
  static constexpr const char* kNoRun[] = {"--load", "--save", "--log-json", "--data-path", "--train-data-path"};
  /// Options of a run that say how long it is, or which steps it records.
  static constexpr const char* kOwnLength[] = {"--train-iters", "--train-samples", "--profile-step-start",
                                               "--profile-step-end"};
  void take(const std::string& name, const std::string& text) {
    if (name == "--preset") preset = text;
    if (name == "--arch") arch = text;
    if (name == "--steps") steps = count(name, text, 1);
    if (name == "--warmup") warmup = count(name, text, 0);
    if (name == "--trace") trace = text;
    if (name == "--num-micro-batches") num_micro_batches = count(name, text, 1);
  }
  static std::int64_t count(const std::string& name, const std::string& text, std::int64_t least) {
    const std::string problem = config::integer_problem(text, least);
    if (!problem.empty()) throw ConfigError(str_cat(name, " ", text, ": ", problem));
    return *config::parse_integer(text);
  }
};

/// A run must name a length; the benchmark has its own.
constexpr std::int64_t kSettingsIterations = 1;

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
                                         "0"};

nlohmann::ordered_json memory_json(const train::BenchResult& r) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (std::size_t k = 0; k < tensor::kNumMemoryKinds; ++k)
    json[std::string(tensor::memory_kind_name(static_cast<MemoryKind>(k)))] = r.peak_bytes_by_kind[k];
  return json;
}

/// One object per rank and row; times and counts of one step.
nlohmann::ordered_json profile_json(const train::StepProfile& profile) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const auto steps = static_cast<double>(profile.num_steps);
  for (std::size_t rank = 0; rank < profile.ranks.size(); ++rank) {
    const train::RankProfile& all = profile.ranks[rank];
    for (const train::ProfileRow& row : all.rows) {
      const double seconds = row.seconds();
      const auto rate = [&](std::int64_t work) { return seconds > 0 ? static_cast<double>(work) / seconds : 0.0; };
      list.push_back({{"rank", rank},
                      {"name", row.title()},
                      {"category", row.category()},
                      {"calls", static_cast<double>(row.calls) / steps},
                      {"seconds", seconds / steps},
                      {"share", static_cast<double>(row.own_ns) / static_cast<double>(all.step_ns)},
                      {"flops", static_cast<double>(row.work.flops) / steps},
                      {"bytes", static_cast<double>(row.work.bytes) / steps},
                      {"flops_per_second", rate(row.work.flops)},
                      {"bytes_per_second", rate(row.work.bytes)}});
      const double share = train::share_of_limit(row, profile.limits);
      if (share == 0) continue;  // no work of a kernel
      list.back()["share_of_limit"] = share;
      list.back()["limit"] = train::bound_by_matmul(row, profile.limits) ? "matmul" : "copy";
    }
  }
  return list;
}

/// Seconds of a recorded step of each rank: what the rows of a rank add up to.
nlohmann::ordered_json profile_step_seconds(const train::StepProfile& profile) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const train::RankProfile& rank : profile.ranks)
    list.push_back(1e-9 * static_cast<double>(rank.step_ns) / static_cast<double>(profile.num_steps));
  return list;
}

/// `library`: the peak of oneDNN, 0 without it.
nlohmann::ordered_json result_json(const StepRequest& request, const spec::RunSpec& run, const train::BenchResult& r,
                                   double library) {
  const double peak = std::max(r.matmul_peak_flops_per_second, library);
  nlohmann::ordered_json json = {
      {"trainer", "megatron.cpp"},
      {"preset", request.preset},
      {"arch", request.arch},
      {"world_size", run.parallel.world_size},
      {"threads_per_rank", r.threads_per_rank},
      {"parameters", r.parameters},
      {"tokens_per_step", r.tokens_per_step},
      {"tokens_per_second", r.tokens_per_second},
      {"step_seconds", r.step_seconds},
      {"model_flops_per_second", r.model_flops_per_second},
      {"matmul_peak_flops_per_second", peak},
      {"own_matmul_peak_flops_per_second", r.matmul_peak_flops_per_second},
      {"onednn_matmul_peak_flops_per_second", library},
      {"ratio_to_matmul_peak", r.model_flops_per_second / peak},
      {"seconds_to_first_step_end", r.seconds_to_first_step_end},
      {"forward_seconds", r.forward_seconds},
      {"backward_seconds", r.backward_seconds},
      {"exposed_communication_seconds", r.exposed_seconds},
      {"optimizer_seconds", r.optimizer_seconds},
      {"peak_rss_bytes", r.peak_rss_bytes},
      {"peak_bytes", r.peak_bytes()},
      {"peak_bytes_by_kind", memory_json(r)},
      {"peak_rss_to_peak_bytes", static_cast<double>(r.peak_rss_bytes) / static_cast<double>(r.peak_bytes())},
      {"first_loss", r.first_loss},
      {"last_loss", r.last_loss}};
  if (!r.pipeline.ranks.empty()) {
    for (const train::StageSeconds& s : r.pipeline.ranks)
      json["stage_seconds"].push_back({{"F", s.forward}, {"I", s.input_grad}, {"W", s.weight_grad}, {"B", s.backward}});
    json["bubble_rate"] = r.pipeline.bubble_rate;
    json["simulated_bubble_rate"] = r.pipeline.simulated_bubble_rate;
  }
  if (!run.log.profile) return json;
  json["copy_peak_bytes_per_second"] =
      r.profile.limits.copy_bytes_per_second * static_cast<double>(run.parallel.world_size);
  if (request.json) {
    json["profile_step_seconds"] = profile_step_seconds(r.profile);
    json["profile"] = profile_json(r.profile);
  }
  return json;
}

config::ParsedRun parse_step(const std::vector<std::string>& words, const std::vector<std::string>& preset) {
  config::ParsedRun parsed = config::parse_run(words, {config::ParseMode::train, {}, launcher_size(), preset});
  config::require_accepted(parsed);
  return parsed;
}

}  // namespace

int bench_step(Arguments args) {
  const StepRequest request(args);
  std::vector<std::string> preset = config::preset_args(request.preset, request.arch);
  preset.insert(preset.end(), std::begin(kStepSettings), std::end(kStepSettings));
  preset.insert(preset.end(), {"--train-iters", std::to_string(kSettingsIterations)});
  config::ParsedRun parsed = parse_step(request.rest, preset);
  if (request.num_micro_batches > 0) {
    const auto names_batch = [](const std::string& word) { return word.rfind("--global-batch-size", 0) == 0; };
    if (std::any_of(request.rest.begin(), request.rest.end(), names_batch))
      throw ConfigError("--num-micro-batches and --global-batch-size exclude each other");
    std::vector<std::string> words = request.rest;
    const spec::RunSpec& run = parsed.spec;
    words.insert(words.end(),
                 {"--global-batch-size",
                  std::to_string(request.num_micro_batches * run.batch.micro_batch_size * run.parallel.data_parallel)});
    parsed = parse_step(words, preset);
  }
  print_notices(parsed);
  if (parsed.spec.batch.train_iters != kSettingsIterations && is_first_process())
    std::fputs("notice: train_iters of the configuration has no effect: --warmup and --steps count\n", stderr);
  spec::LogSpec& log = parsed.spec.log;
  log.profile = log.profile || request.profile;
  if (request.trace.has_value()) log.trace = request.trace;
  // A file that cannot be written is told before anything has been trained.
  if (log.trace.has_value() && is_first_process()) train::check_writable("--trace", *log.trace);
  const train::BenchResult r = train::bench_step(parsed.spec, request.warmup, request.steps, request.quick_peak);
  if (!is_first_process()) return 0;
  // oneDNN last: its threads stay. Processes of other machines cannot take part in one product.
  const bool one_process = launcher_size() <= 1;
  const double library =
      one_process && !request.quick_peak
          ? library_matmul_peak(r.threads_per_rank * parsed.spec.parallel.world_size, parsed.spec.numerics.params_dtype)
          : 0.0;
  print_bench(result_json(request, parsed.spec, r, library), request.json);
  if (log.profile && !request.json) std::fputs(train::profile_table(r.profile).c_str(), stdout);
  return 0;
}

}  // namespace megatron::cli
