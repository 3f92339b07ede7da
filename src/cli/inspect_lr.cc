// megatron inspect lr: learning rate and weight decay of every update.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "base/check.h"
#include "cli/inspect.h"
#include "schedule/lr_schedule.h"
#include "spec/batch_schedule.h"

namespace megatron::cli {
namespace {

/// Calls f(iteration, samples before it) for every update: the first one uses the schedule at 0 samples.
template <typename F>
void for_each_update(const spec::BatchSpec& batch, F&& f) {
  const spec::BatchSchedule batches(batch);
  const std::int64_t updates = spec::train_iterations(batch).value_or(0);
  std::int64_t samples = 0;
  for (std::int64_t i = 0; i < updates; ++i) {
    f(i + 1, samples);
    samples += batches.at(samples).global_batch;
  }
}

void print_json(const spec::RunSpec& run, const schedule::LrSchedule& s) {
  nlohmann::ordered_json head;
  head["lr_decay_style"] = schedule::style_name(s.style);
  head["init_lr"] = s.init_lr;
  head["max_lr"] = s.max_lr;
  head["min_lr"] = s.min_lr;
  head["warmup_samples"] = s.warmup_samples;
  head["decay_samples"] = s.decay_samples;
  if (s.style == spec::DecayStyle::wsd) {
    head["lr_wsd_decay_style"] = schedule::style_name(s.wsd_style);
    head["wsd_decay_samples"] = s.wsd_decay_samples;
  }
  head["weight_decay_incr_style"] = schedule::style_name(s.weight_decay_style);
  head["start_weight_decay"] = s.start_weight_decay;
  head["end_weight_decay"] = s.end_weight_decay;
  head["weight_decay_samples"] = s.weight_decay_samples;
  // Written by hand: a run has up to millions of updates.
  std::printf("{\"schedule\":%s,\"steps\":[", head.dump().c_str());
  for_each_update(run.batch, [&](std::int64_t iteration, std::int64_t samples) {
    std::printf("%s{\"iteration\":%lld,\"consumed_samples\":%lld,\"lr\":%.17g,\"weight_decay\":%.17g}",
                iteration == 1 ? "" : ",", static_cast<long long>(iteration), static_cast<long long>(samples),
                s.lr(samples), s.weight_decay(samples));
  });
  std::puts("]}");
}

void print_text(const spec::RunSpec& run, const schedule::LrSchedule& s) {
  const std::string style(schedule::style_name(s.style)), decay_style(schedule::style_name(s.weight_decay_style));
  std::printf("learning rate %s: %g -> %g over %g samples of warm-up, %g at %lld samples\n", style.c_str(), s.init_lr,
              s.max_lr, s.warmup_samples, s.lr(s.decay_samples), static_cast<long long>(s.decay_samples));
  std::printf("weight decay %s: %g -> %g over %lld samples\n\n", decay_style.c_str(), s.start_weight_decay,
              s.end_weight_decay, static_cast<long long>(s.weight_decay_samples));
  std::puts(" iteration  samples before   learning rate    weight decay");
  for_each_update(run.batch, [&](std::int64_t iteration, std::int64_t samples) {
    std::printf("%10lld %15lld %15.6E %15.6E\n", static_cast<long long>(iteration), static_cast<long long>(samples),
                s.lr(samples), s.weight_decay(samples));
  });
}

}  // namespace

int inspect_lr(const spec::RunSpec& run, bool json) {
  if (!run.batch.skip_train && !spec::trains(run.batch))
    throw ConfigError(str_cat(run.batch.train_iters ? "--train-iters " : "--train-samples ",
                              run.batch.train_iters.value_or(run.batch.train_samples.value_or(0)),
                              ": less than one step, so there is no learning rate to show; nearest: --train-iters 1"));
  const schedule::LrSchedule lr_schedule = schedule::make_lr_schedule(run.optimizer, run.batch);
  if (json)
    print_json(run, lr_schedule);
  else
    print_text(run, lr_schedule);
  return 0;
}

}  // namespace megatron::cli
