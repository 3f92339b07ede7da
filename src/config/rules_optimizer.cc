#include "config/nearest.h"
#include "config/rules.h"
#include "config/text_value.h"
#include "spec/batch_schedule.h"

namespace megatron::config {
namespace {

void learning_rate(RuleContext& c) {
  const auto& o = c.run().optimizer;
  if (!o.lr) {
    if (c.mode() == ParseMode::train && spec::trains(c.run().batch)) c.required("--lr");
    if (c.mode() == ParseMode::validate) c.notice("no learning rate: training needs --lr");
    return;
  }
  if (o.min_lr > *o.lr) c.error({"--min-lr", "--lr"}, "--min-lr above --lr");
  if (o.lr_warmup_init > *o.lr) c.error({"--lr-warmup-init", "--lr"}, "the warm-up must start at or below --lr");
}

void warmup(RuleContext& c) {
  const auto& o = c.run().optimizer;
  const auto& b = c.run().batch;
  if (o.lr_warmup_fraction && (o.lr_warmup_iters > 0 || o.lr_warmup_samples > 0))
    c.exclusive("--lr-warmup-fraction", o.lr_warmup_iters > 0 ? "--lr-warmup-iters" : "--lr-warmup-samples");
  const bool by_samples = b.train_samples.has_value();
  const auto decay = by_samples ? (o.lr_decay_samples ? o.lr_decay_samples : b.train_samples)
                                : (o.lr_decay_iters ? o.lr_decay_iters : b.train_iters);
  const std::int64_t rise = by_samples ? o.lr_warmup_samples : o.lr_warmup_iters;
  if (decay && *decay > 0 && rise > 0 && rise >= *decay)
    c.error({by_samples ? "--lr-warmup-samples" : "--lr-warmup-iters",
             by_samples ? (o.lr_decay_samples ? "--lr-decay-samples" : "--train-samples")
                        : (o.lr_decay_iters ? "--lr-decay-iters" : "--train-iters")},
            str_cat("a warm-up of ", rise, " does not end before the schedule of ", *decay, "; nearest: ", *decay - 1));
}

void weight_decay(RuleContext& c) {
  const auto& o = c.run().optimizer;
  if (o.weight_decay_incr_style == spec::WeightDecayStyle::constant) return;
  if (!o.start_weight_decay || !o.end_weight_decay) {
    c.error({"--weight-decay-incr-style"}, "needs --start-weight-decay and --end-weight-decay");
  } else if (*o.start_weight_decay > *o.end_weight_decay) {
    c.error({"--start-weight-decay", "--end-weight-decay"},
            str_cat("the weight decay may only grow; nearest: --end-weight-decay ", *o.start_weight_decay));
  }
}

void wsd(RuleContext& c) {
  const auto& o = c.run().optimizer;
  const bool is_wsd = o.lr_decay_style == spec::DecayStyle::wsd;
  if (is_wsd && !o.lr_wsd_decay_iters && !o.lr_wsd_decay_samples)
    c.error({"--lr-decay-style"}, "WSD needs --lr-wsd-decay-iters or --lr-wsd-decay-samples");
}

void schedule_on_resume(RuleContext& c) {
  const auto& o = c.run().optimizer;
  if (o.override_opt_param_scheduler && o.use_checkpoint_opt_param_scheduler)
    c.exclusive("--override-opt_param-scheduler", "--use-checkpoint-opt_param-scheduler");
}

void momentum(RuleContext& c) {
  const auto& o = c.run().optimizer;
  if (o.sgd_nesterov && o.sgd_momentum == 0)
    c.error({"--sgd-nesterov", "--sgd-momentum"}, "Nesterov's momentum needs a momentum above 0");
}

std::int64_t steps_of_set(spec::MuonCoefficients coefficients) {
  switch (coefficients) {
    case spec::MuonCoefficients::simple:
      return 1;
    case spec::MuonCoefficients::quintic:
      return 5;
    case spec::MuonCoefficients::polar_express:
      return 8;
    case spec::MuonCoefficients::aol:
      return 4;
  }
  return 1;
}

void muon(RuleContext& c) {
  const auto& o = c.run().optimizer;
  if (o.kind != spec::OptimizerKind::muon) return;
  const std::int64_t steps = steps_of_set(o.muon.coefficients);
  if (o.muon.num_ns_steps % steps != 0)
    c.error({"--muon-num-ns-steps", "--muon-coefficient-type"},
            str_cat("the set has ", steps, " steps: their number must be a multiple; nearest: ",
                    nearest_multiples(o.muon.num_ns_steps, steps)));
  const auto& m = c.run().model;
  if (o.muon.tp_mode == spec::MuonTpMode::blockwise && !o.muon.split_qkv &&
      m.num_query_groups < c.run().parallel.tensor_parallel)
    c.error({"--muon-tp-mode", "--muon-no-split-qkv"},
            str_cat("tensor-parallel ranks that share the keys and values of ", m.num_query_groups,
                    " groups would update them differently; nearest: --muon-tp-mode duplicated"));
}

void loss_scale(RuleContext& c) {
  const spec::LossScaleSpec& scale = c.run().numerics.loss_scale;
  constexpr double kMost = 3e38;  // the scale multiplies float32 gradients
  const auto in_range = [&](std::string_view name, double value) {
    if (value > kMost) c.error({name}, "leaves the range of float32: must be at most 3e+38; nearest: 3e+38");
  };
  if (scale.constant.has_value()) {
    in_range("--loss-scale", *scale.constant);
    for (const std::string_view name :
         {"--initial-loss-scale", "--min-loss-scale", "--loss-scale-window", "--hysteresis"})
      if (c.user_asks(name)) c.notice(str_cat(name, ": no effect beside a constant --loss-scale"));
    return;
  }
  in_range("--initial-loss-scale", scale.initial);
  in_range("--min-loss-scale", scale.minimum);
  if (scale.initial < scale.minimum && scale.minimum <= kMost)
    c.error({"--initial-loss-scale", "--min-loss-scale"},
            str_cat("starts below the minimum; nearest: ", format_real(scale.minimum)));
}

void precision(RuleContext& c) {
  const bool bf16 = c.switches().bf16, fp16 = c.switches().fp16;
  if (bf16 && fp16) c.exclusive("--bf16", "--fp16");
  if (!fp16)
    for (const std::string_view name :
         {"--loss-scale", "--initial-loss-scale", "--min-loss-scale", "--loss-scale-window", "--hysteresis"})
      if (c.given(name)) c.notice(str_cat(name, ": only with --fp16, no effect here"));
  if (!bf16 && !fp16 && c.given("--fp32-residual-connection"))
    c.notice("--fp32-residual-connection: only beside --bf16 or --fp16, no effect here");
  if (fp16) loss_scale(c);
}

}  // namespace

std::vector<Rule> optimizer_rules() {
  return {{"learning rate", learning_rate},
          {"warm-up", warmup},
          {"weight decay", weight_decay},
          {"WSD", wsd},
          {"schedule on resume", schedule_on_resume},
          {"momentum", momentum},
          {"Muon", muon},
          {"precision", precision}};
}

}  // namespace megatron::config
