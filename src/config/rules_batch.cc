#include <algorithm>

#include "config/nearest.h"
#include "config/rules.h"
#include "config/text_value.h"
#include "spec/micro_batches.h"

namespace megatron::config {
namespace {

void batch(RuleContext& c) {
  const auto& b = c.run().batch;
  const std::int64_t dp = c.run().parallel.data_parallel, step = b.micro_batch_size * dp;
  if (c.mode() == ParseMode::layout) return;
  if (b.micro_batch_size == 0) {
    c.required("--micro-batch-size");
    return;
  }
  if (c.given("--step-batch-size-schedule") && c.given("--global-batch-size"))
    c.exclusive("--step-batch-size-schedule", "--global-batch-size");
  if (step == 0) return;
  if (spec::constant_micro_batches(b.global_batch_size, b.micro_batch_size, dp).running_global_batch ==
      b.global_batch_size)
    return;
  if (c.switches().decrease_batch_size_if_needed) {
    c.not_built({"--decrease-batch-size-if-needed", "--global-batch-size"},
                str_cat("rounding the batch down is not built in this version; nearest: ",
                        nearest_multiples(b.global_batch_size, step)));
    return;
  }
  c.error(
      {"--global-batch-size", "--micro-batch-size"},
      str_cat("global batch ", b.global_batch_size, " is not k x micro-batch ", b.micro_batch_size, " x data parallel ",
              dp, " = k x ", step, "; nearest: ", nearest_multiples(b.global_batch_size, step)));
}

void evaluation(RuleContext& c) {
  const auto& b = c.run().batch;
  const std::int64_t dp = c.run().parallel.data_parallel;
  const std::int64_t micro = b.eval_micro_batch_size.value_or(b.micro_batch_size);
  const std::int64_t global = b.eval_global_batch_size.value_or(b.global_batch_size);
  if (c.mode() == ParseMode::layout || micro * dp == 0) return;
  if (!b.eval_micro_batch_size && !b.eval_global_batch_size) return;
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
  if (log.profile_step_end <= log.profile_step_start)
    c.error({"--profile-step-start", "--profile-step-end"}, "the last recorded iteration must be above the start");
  else if (b.train_iters.has_value() && *b.train_iters <= log.profile_step_start && c.given("--train-iters"))
    c.error({asked, "--profile-step-start", "--train-iters"},
            str_cat("the run ends before iteration ", log.profile_step_start + 1,
                    ", the first to be recorded; nearest: --profile-step-start ",
                    std::max<std::int64_t>(0, *b.train_iters - 1)));
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
  const std::int64_t global = b.global_batch_size;
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

std::vector<Rule> batch_rules() {
  return {
      {"batch", batch}, {"evaluation", evaluation}, {"length", length}, {"recording", recording}, {"counts", counts}};
}

}  // namespace megatron::config
