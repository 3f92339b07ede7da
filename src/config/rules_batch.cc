#include <algorithm>

#include "config/nearest.h"
#include "config/rules.h"
#include "config/text_value.h"
#include "spec/batch_schedule.h"
#include "spec/micro_batches.h"

namespace megatron::config {
namespace {

/// Every batch that the run reaches must be whole micro-batches of all ranks, or be rounded to some.
void check_sizes(RuleContext& c) {
  constexpr int kMostErrors = 4;
  const auto& b = c.run().batch;
  const std::int64_t round = b.samples_per_round;
  const spec::BatchSchedule schedule(b);
  const std::string_view source = batch_option(b);
  int errors = 0;
  for (const spec::BatchStretch& stretch : schedule.trajectory(std::nullopt)) {
    if (b.train_iters && stretch.first_iteration >= std::max<std::int64_t>(*b.train_iters, 1)) break;
    if (b.train_samples && stretch.first_sample >= std::max<std::int64_t>(*b.train_samples, 1)) break;
    const spec::StepBatch& batch = stretch.batch;
    const bool decrease = c.switches().decrease_batch_size_if_needed && batch.global_batch > 0;
    if (batch.nominal == batch.global_batch || decrease) continue;
    const std::string tokens =
        b.batch_steps.empty() ? "" : str_cat(", token ", stretch.first_sample * c.run().model.seq_length, ",");
    const std::string place =
        schedule.is_constant() ? "" : str_cat(" (from sample ", stretch.first_sample, tokens, " on)");
    const std::string rule = batch.global_batch == 0 && c.switches().decrease_batch_size_if_needed
                                 ? " would never advance: it is less than micro-batch "
                                 : " is not k x micro-batch ";
    const std::string text = str_cat("global batch ", batch.nominal, place, rule, b.micro_batch_size,
                                     " x data parallel ", c.run().parallel.data_parallel, " = k x ", round,
                                     "; nearest: ", nearest_multiples(batch.nominal, round));
    // Megatron-LM has come to ignore the ramp and so accepts a run that cannot follow it.
    if (b.rampup)
      c.refuse({source, "--micro-batch-size"}, text);
    else
      c.error({source, "--micro-batch-size"}, text);
    if (++errors == kMostErrors) break;
  }
}

void batch(RuleContext& c) {
  const auto& b = c.run().batch;
  if (c.mode() == ParseMode::layout) return;
  if (b.micro_batch_size == 0) {
    c.required("--micro-batch-size");
    return;
  }
  if (c.given("--step-batch-size-schedule"))
    for (std::string_view other : {"--global-batch-size", "--rampup-batch-size", "--decrease-batch-size-if-needed"})
      if (c.user_asks(other)) c.exclusive("--step-batch-size-schedule", other);
  if (c.given("--rampup-batch-size") && !c.given("--global-batch-size") && !c.given("--step-batch-size-schedule"))
    c.error({"--rampup-batch-size"}, "needs --global-batch-size, where the ramp ends");
  if (b.samples_per_round > 0) check_sizes(c);
}

/// A batch that a run is too short for is legal, but hardly meant.
void unreached(RuleContext& c) {
  const auto& b = c.run().batch;
  const auto iterations = b.samples_per_round > 0 ? spec::train_iterations(b) : std::nullopt;
  if (c.mode() == ParseMode::layout || iterations.value_or(0) < 1) return;
  const spec::BatchSchedule schedule(b);
  const std::vector<spec::BatchStretch> all = schedule.trajectory(std::nullopt);
  const std::size_t reached = schedule.trajectory(iterations).size();
  if (reached < all.size() && all[reached].batch.global_batch > 0)
    c.notice(str_cat(batch_option(b), ": the run ends before global batch ", all[reached].batch.global_batch,
                     ", which comes after ", all[reached].first_sample, " samples"));
}

void evaluation(RuleContext& c) {
  const auto& b = c.run().batch;
  const std::int64_t dp = c.run().parallel.data_parallel;
  const std::int64_t micro = b.eval_micro_batch_size.value_or(b.micro_batch_size);
  const std::int64_t global = b.eval_global_batch_size.value_or(b.global_batch_size);
  if (c.mode() == ParseMode::layout || micro * dp == 0) return;
  // A training batch of constant size has been looked at; the last of changing ones may lie beyond the run.
  const bool changes = b.rampup.has_value() || !b.batch_steps.empty();
  if (!b.eval_micro_batch_size && !b.eval_global_batch_size && !(changes && b.eval_iters > 0)) return;
  if (spec::constant_micro_batches(global, micro, dp).running_global_batch != global)
    c.error({"--eval-global-batch-size", "--eval-micro-batch-size"},
            str_cat("evaluation batch ", global, " is not k x micro-batch ", micro, " x data parallel ", dp, " = k x ",
                    micro * dp, "; nearest: ", nearest_multiples(global, micro * dp)));
}

void length(RuleContext& c) {
  const auto& o = c.run().optimizer;
  const bool iters = c.given("--train-iters"), samples = c.given("--train-samples");
  if (iters && samples) c.exclusive("--train-iters", "--train-samples");
  if (iters) {
    for (std::string_view name : {"--lr-decay-samples", "--lr-wsd-decay-samples"})
      if (c.given(name)) c.exclusive("--train-iters", name);
    if (o.lr_warmup_samples > 0) c.exclusive("--train-iters", "--lr-warmup-samples");
  } else if (samples) {
    for (std::string_view name : {"--lr-decay-iters", "--lr-wsd-decay-iters"})
      if (c.given(name)) c.exclusive("--train-samples", name);
    if (o.lr_warmup_iters > 0) c.exclusive("--train-samples", "--lr-warmup-iters");
  } else if (c.mode() == ParseMode::train && !c.run().batch.skip_train) {
    c.required("--train-iters", "the length of the run");
  } else if (c.mode() == ParseMode::validate) {
    c.notice("no length: training needs --train-iters or --train-samples");
  }
}

/// Steps that somebody wants recorded must be among those that the run trains.
void recording(RuleContext& c) {
  const spec::LogSpec& log = c.run().log;
  const auto& b = c.run().batch;
  if (log.trace.has_value() && log.trace->empty()) c.error({"--trace"}, "needs the name of a file");
  if (!log.profile && !log.trace.has_value()) return;
  const std::string_view asked = log.trace.has_value() ? "--trace" : "--profile";
  if (b.skip_train) return c.exclusive("--skip-train", asked);
  if (!spec::trains(b))
    return c.error({asked, b.train_iters ? "--train-iters" : "--train-samples"},
                   "there is no step to record; nearest: --train-iters 1");
  if (log.profile_step_end <= log.profile_step_start)
    c.error({"--profile-step-start", "--profile-step-end"}, "the last recorded iteration must be above the start");
  else if (b.train_iters.has_value() && *b.train_iters <= log.profile_step_start && c.given("--train-iters"))
    c.error({asked, "--profile-step-start", "--train-iters"},
            str_cat("the run ends before iteration ", log.profile_step_start + 1,
                    ", the first to be recorded; nearest: --profile-step-start ",
                    std::max<std::int64_t>(0, *b.train_iters - 1)));
}

/// Bytes are counted in 64 bits: no micro-batch may have so many activations that they leave them.
void activations(RuleContext& c) {
  constexpr double kMostActivations = 1e17;
  const auto& m = c.run().model;
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  const double layer =
      16 * real(m.hidden_size) + 4 * real(m.ffn_hidden_size) + 3 * real(m.num_attention_heads) * real(m.kv_channels);
  const double sample = real(m.seq_length) * (real(m.num_layers) * layer + 2 * real(m.padded_vocab_size));
  const std::int64_t micro = std::max(c.run().batch.micro_batch_size, c.run().batch.eval_micro_batch_size.value_or(0));
  if (c.mode() != ParseMode::layout && real(micro) * sample > kMostActivations)
    c.error({"--micro-batch-size", "--seq-length"},
            str_cat("more than 10^17 activations in a micro-batch; nearest: --micro-batch-size ",
                    std::max<std::int64_t>(1, static_cast<std::int64_t>(kMostActivations / sample))));
}

/// Samples are counted in 64 bits: no product may leave them.
void counts(RuleContext& c) {
  constexpr double kMostSamples = 1e15;
  const auto& b = c.run().batch;
  const auto& o = c.run().optimizer;
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  const auto check = [&](std::string_view name, double number, std::string_view batch_name, std::int64_t batch) {
    if (number * real(batch) > kMostSamples)
      c.error({name, batch_name}, str_cat("more than 10^15 samples; nearest: ",
                                          static_cast<std::int64_t>(kMostSamples) / std::max<std::int64_t>(batch, 1)));
  };
  std::int64_t global = b.global_batch_size;
  for (const spec::BatchStep& step : b.batch_steps) global = std::max(global, step.global_batch);
  check("--train-iters", real(b.train_iters.value_or(0)), "--global-batch-size", global);
  check("--train-samples", real(b.train_samples.value_or(0)), "--global-batch-size", 1);
  check("--lr-decay-iters", real(o.lr_decay_iters.value_or(0)), "--global-batch-size", global);
  check("--lr-wsd-decay-iters", real(o.lr_wsd_decay_iters.value_or(0)), "--global-batch-size", global);
  check("--lr-warmup-iters", real(o.lr_warmup_iters), "--global-batch-size", global);
  const double iterations = b.train_iters ? real(*b.train_iters) : real(b.train_samples.value_or(0));
  const double evaluations = 1 + (b.eval_interval ? iterations / real(*b.eval_interval) : 0.0);
  check("--eval-iters", real(b.eval_iters) * evaluations,
        b.eval_global_batch_size ? "--eval-global-batch-size" : "--global-batch-size",
        b.eval_global_batch_size.value_or(global));
}

}  // namespace

std::string_view batch_option(const spec::BatchSpec& b) {
  return b.rampup                ? "--rampup-batch-size"
         : b.batch_steps.empty() ? "--global-batch-size"
                                 : "--step-batch-size-schedule";
}

std::vector<Rule> batch_rules() {
  return {{"batch", batch},         {"unreached", unreached}, {"evaluation", evaluation},  {"length", length},
          {"recording", recording}, {"counts", counts},       {"activations", activations}};
}

}  // namespace megatron::config
