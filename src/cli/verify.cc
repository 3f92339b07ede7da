// megatron verify --hf DIR --reference case.safetensors [layout options] [--json]: the same numbers as another program?
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/run_parsing.h"
#include "config/parse.h"
#include "train/assemble.h"
#include "train/verify.h"

namespace megatron::cli {
namespace {

std::string own_value(const config::ParsedRun& parsed, const char* name) {
  const auto found = parsed.own.find(name);
  if (found == parsed.own.end())
    throw ConfigError(str_cat(name, " is missing: megatron verify --hf DIR --reference FILE"));
  return found->second;
}

spec::RunSpec make_run(const config::ParsedRun& parsed, const interop::HuggingFaceModel& model,
                       const interop::ReferenceCase& reference) {
  spec::RunSpec run = parsed.spec;
  train::describe_verification(run, model.model(), reference);
  const std::vector<std::string> problems = config::complete_run(run, launcher_size());
  std::string lines;
  for (const std::string& problem : problems) lines += (lines.empty() ? "" : "\n") + problem;
  if (!lines.empty()) throw ConfigError(lines);
  train::check_verification(run, reference);
  return run;
}

/// Where tolerances and settings come from; standard error under --json, so that standard output holds objects only.
void print_settings(std::FILE* out, const interop::ReferenceCase& reference) {
  const interop::ReferenceTolerances& t = reference.tolerances();
  const interop::ReferenceTraining& s = reference.training();
  if (!reference.settings_path().empty())
    std::fprintf(out, "tolerances and training settings: %s\n", reference.settings_path().c_str());
  else
    std::fprintf(out, "no case.json beside %s: tolerances of the reference case \"llama\", its training settings\n",
                 reference.path().c_str());
  std::fprintf(out,
               "  logits_abs %g, hidden_abs %g, token_losses_abs %g, loss_abs %g, grad_rel_to_tensor_max %g, "
               "grad_norm_rel %g, train_loss_abs %g, train_grad_norm_rel %g, final_rms %g, final_abs %g\n",
               t.logits_abs, t.hidden_abs, t.token_losses_abs, t.loss_abs, t.grad_rel_to_tensor_max, t.grad_norm_rel,
               t.train_loss_abs, t.train_grad_norm_rel, t.final_rms, t.final_abs);
  std::fprintf(out, "  AdamW lr %g, betas %g %g, eps %g, weight decay %g, clip %g\n", s.lr, s.beta1, s.beta2, s.eps,
               s.weight_decay, s.clip_grad);
}

void print_json(const train::Comparison& c) {
  nlohmann::ordered_json json{{"quantity", c.quantity}, {"error", c.error}, {"tolerance", c.tolerance}, {"ok", c.ok}};
  if (!std::isfinite(c.error)) json["error"] = nullptr;  // JSON has no NaN
  std::printf("%s\n", json.dump().c_str());
}

void print_report(const train::VerifyReport& report, bool json) {
  std::size_t width = 8, failed = 0;
  for (const train::Comparison& c : report.comparisons) width = std::max(width, c.quantity.size());
  for (const std::string& name : report.not_compared) width = std::max(width, name.size());
  for (const train::Comparison& c : report.comparisons) {
    failed += c.ok ? 0 : 1;
    if (json)
      print_json(c);
    else
      std::printf("%-*s  error %-12.4g tolerance %-10.3g %s\n", static_cast<int>(width), c.quantity.c_str(), c.error,
                  c.tolerance, c.ok ? "ok" : "OUTSIDE");
  }
  std::FILE* const notes = json ? stderr : stdout;
  for (const std::string& name : report.not_compared)
    std::fprintf(notes, "%-*s  not compared\n", static_cast<int>(width), name.c_str());
  if (report.comparisons.empty()) std::fprintf(notes, "nothing was compared\n");
  std::fprintf(notes, "%zu compared, %zu outside, %zu not compared\n", report.comparisons.size(), failed,
               report.not_compared.size());
}

int verify(const config::ParsedRun& parsed) {
  const std::string folder = own_value(parsed, "--hf"), file = own_value(parsed, "--reference");
  refuse_described_options(
      parsed,
      {"--make-vocab-size-divisible-by", "--micro-batch-size", "--recompute-granularity", "--recompute-activations",
       "--recompute-method", "--recompute-num-layers", "--recompute-modules", "--distribute-saved-activations"},
      "model, data and training come from --hf and --reference");
  print_notices(parsed);
  const interop::HuggingFaceModel model(folder);
  const interop::ReferenceCase reference(file);
  const spec::RunSpec run = make_run(parsed, model, reference);
  const bool json = parsed.own.count("--json") != 0;
  const auto world = train::create_world(run);
  const bool main = world->is_main_process();
  if (main) print_settings(json ? stderr : stdout, reference);
  train::VerifyReport report;
  try {
    report = train::verify(*world, run, model, reference);
  } catch (const Error& error) {
    if (!world->failure_reported()) throw;
    return exit_status(error);  // the line of the failed rank has been printed
  }
  if (main) print_report(report, json);
  return report.passed() ? 0 : 1;
}

}  // namespace

std::vector<config::CommandOption> verify_options() {
  return {
      {"--hf", true, "Hugging Face model folder: config.json and model.safetensors."},
      {"--reference", true, "case.safetensors with the other program's numbers; case.json beside it has tolerances."},
      {"--json", false, "Print one JSON object per quantity."}};
}

int run_verify(Arguments args) {
  try {
    const config::ParsedRun parsed =
        config::parse_run(args, {config::ParseMode::layout, verify_options(), launcher_size()});
    config::require_accepted(parsed);
    return verify(parsed);
  } catch (const Error& error) {
    return tell_once(error);
  }
}

}  // namespace megatron::cli
