#include "config/option_table.h"

namespace megatron::config {
namespace {

using spec::DecayStyle;
using spec::WeightDecayStyle;
using spec::WsdDecayStyle;

std::vector<Option> learning_rate_rows() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(value(
          "--lr", [](Draft & d) -> auto& { return d.run.optimizer.lr; }, "Largest learning rate.")
          .at_least(0));
  add(value(
          "--min-lr", [](Draft & d) -> auto& { return d.run.optimizer.min_lr; }, "Learning rate after decay.")
          .at_least(0));
  add(choice(
      "--lr-decay-style", [](Draft & d) -> auto& { return d.run.optimizer.lr_decay_style; },
      {{"constant", DecayStyle::constant},
       {"linear", DecayStyle::linear},
       {"cosine", DecayStyle::cosine},
       {"inverse-square-root", DecayStyle::inverse_square_root},
       {"WSD", DecayStyle::wsd}},
      "Shape of the decay."));
  add(choice(
      "--lr-wsd-decay-style", [](Draft & d) -> auto& { return d.run.optimizer.lr_wsd_decay_style; },
      {{"exponential", WsdDecayStyle::exponential},
       {"linear", WsdDecayStyle::linear},
       {"cosine", WsdDecayStyle::cosine},
       {"minus_sqrt", WsdDecayStyle::minus_sqrt}},
      "Shape of the last part of WSD."));
  add(value(
          "--lr-decay-iters", [](Draft & d) -> auto& { return d.run.optimizer.lr_decay_iters; },
          "Length of the schedule, warm-up included; unset: --train-iters.")
          .in("iterations")
          .at_least(1));
  add(value(
          "--lr-decay-samples", [](Draft & d) -> auto& { return d.run.optimizer.lr_decay_samples; },
          "The same in samples, with --train-samples.")
          .in("samples")
          .at_least(1));
  add(value(
          "--lr-wsd-decay-iters", [](Draft & d) -> auto& { return d.run.optimizer.lr_wsd_decay_iters; },
          "Length of the last part of WSD.")
          .in("iterations")
          .at_least(0));
  add(value(
          "--lr-wsd-decay-samples", [](Draft & d) -> auto& { return d.run.optimizer.lr_wsd_decay_samples; },
          "The same in samples.")
          .in("samples")
          .at_least(0));
  add(value(
          "--lr-warmup-fraction", [](Draft & d) -> auto& { return d.run.optimizer.lr_warmup_fraction; },
          "Share of the schedule that warms up.")
          .at_least(0)
          .below(1));
  add(value(
          "--lr-warmup-iters", [](Draft & d) -> auto& { return d.run.optimizer.lr_warmup_iters; },
          "Length of the warm-up.")
          .in("iterations")
          .at_least(0));
  add(value(
          "--lr-warmup-samples", [](Draft & d) -> auto& { return d.run.optimizer.lr_warmup_samples; },
          "The same in samples, with --train-samples.")
          .in("samples")
          .at_least(0));
  add(value(
          "--lr-warmup-init", [](Draft & d) -> auto& { return d.run.optimizer.lr_warmup_init; },
          "Learning rate where the warm-up starts.")
          .at_least(0));
  add(flag(
          "--override-opt_param-scheduler",
          [](Draft & d) -> auto& { return d.run.optimizer.override_opt_param_scheduler; },
          "On resume the schedule of the command line goes before the checkpoint's.")
          .alias("--override-opt-param-scheduler"));
  add(flag(
          "--use-checkpoint-opt_param-scheduler",
          [](Draft & d) -> auto& { return d.run.optimizer.use_checkpoint_opt_param_scheduler; },
          "On resume the schedule of the checkpoint goes before the command line's.")
          .alias("--use-checkpoint-opt-param-scheduler"));
  return rows;
}

std::vector<Option> update_rows() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(choice(
          "--optimizer", [](Draft & d) -> auto& { return d.run.optimizer.kind; },
          {{"adam", spec::OptimizerKind::adam},
           {"sgd", spec::OptimizerKind::sgd},
           {"lion", spec::OptimizerKind::lion},
           {"muon", spec::OptimizerKind::muon}},
          "adam is AdamW; muon orthogonalises the updates of matrices.")
          .unbuilt_values({"dist_muon", "soap", "adaptive_muon"}));
  add(value(
          "--weight-decay", [](Draft & d) -> auto& { return d.run.optimizer.weight_decay; },
          "Decoupled weight decay; biases and norms have none.")
          .at_least(0));
  add(off_flag(
          "--no-decoupled-weight-decay", "decoupled_weight_decay",
          [](Draft & d) -> auto& { return d.run.optimizer.decoupled_weight_decay; },
          "Adam adds the weight decay to the gradient (L2) instead.")
          .our_own());
  add(value(
          "--start-weight-decay", [](Draft & d) -> auto& { return d.run.optimizer.start_weight_decay; },
          "Weight decay at the start of its schedule.")
          .at_least(0));
  add(value(
          "--end-weight-decay", [](Draft & d) -> auto& { return d.run.optimizer.end_weight_decay; },
          "Weight decay at the end of its schedule.")
          .at_least(0));
  add(choice(
      "--weight-decay-incr-style", [](Draft & d) -> auto& { return d.run.optimizer.weight_decay_incr_style; },
      {{"constant", WeightDecayStyle::constant},
       {"linear", WeightDecayStyle::linear},
       {"cosine", WeightDecayStyle::cosine}},
      "Shape of the weight decay's schedule."));
  add(flag(
      "--apply-wd-to-qk-layernorm", [](Draft & d) -> auto& { return d.run.optimizer.apply_wd_to_qk_layernorm; },
      "Weight decay on query and key norms too."));
  add(text_choice(
      "--no-weight-decay-cond-type", [](Draft & d) -> auto& { return d.switches.no_weight_decay_cond_type; },
      {"apply_wd_to_qk_layernorm"}, "Older spelling of --apply-wd-to-qk-layernorm."));
  add(value(
          "--clip-grad", [](Draft & d) -> auto& { return d.run.optimizer.clip_grad; },
          "Largest global gradient norm; 0: no clipping.")
          .at_least(0));
  add(value(
          "--adam-beta1", [](Draft & d) -> auto& { return d.run.optimizer.adam_beta1; }, "Decay of the first moment.")
          .at_least(0)
          .below(1));
  add(value(
          "--adam-beta2", [](Draft & d) -> auto& { return d.run.optimizer.adam_beta2; }, "Decay of the second moment.")
          .at_least(0)
          .below(1));
  add(value(
          "--adam-eps", [](Draft & d) -> auto& { return d.run.optimizer.adam_eps; },
          "Added to the root of the second moment.")
          .at_least(0));
  add(value(
          "--sgd-momentum", [](Draft & d) -> auto& { return d.run.optimizer.sgd_momentum; }, "Momentum of SGD.")
          .at_least(0)
          .at_most(1));
  add(flag(
          "--sgd-nesterov", [](Draft & d) -> auto& { return d.run.optimizer.sgd_nesterov; },
          "Nesterov's momentum: the update looks one step ahead.")
          .our_own());
  add(value(
          "--lion-beta1", [](Draft & d) -> auto& { return d.run.optimizer.lion_beta1; },
          "Share of the moment in Lion's update.")
          .at_least(0)
          .below(1));
  add(value(
          "--lion-beta2", [](Draft & d) -> auto& { return d.run.optimizer.lion_beta2; }, "Decay of Lion's moment.")
          .at_least(0)
          .below(1));
  return rows;
}

std::vector<Option> muon_rows() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(value(
          "--muon-momentum", [](Draft & d) -> auto& { return d.run.optimizer.muon.momentum; }, "Momentum of Muon.")
          .at_least(0)
          .below(1));
  add(flag(
      "--muon-nesterov", [](Draft & d) -> auto& { return d.run.optimizer.muon.nesterov; },
      "Nesterov's momentum in Muon."));
  add(off_flag(
      "--muon-no-split-qkv", "muon_split_qkv", [](Draft & d) -> auto& { return d.run.optimizer.muon.split_qkv; },
      "Orthogonalise queries, keys and values as one matrix."));
  add(choice(
      "--muon-scale-mode", [](Draft & d) -> auto& { return d.run.optimizer.muon.scale_mode; },
      {{"spectral", spec::MuonScaleMode::spectral},
       {"unit_rms_norm", spec::MuonScaleMode::unit_rms_norm},
       {"shape_scaling", spec::MuonScaleMode::shape_scaling}},
      "Factor on an update: sqrt(max(out, in)), sqrt(out/in) or sqrt(max(1, out/in))."));
  add(value(
          "--muon-extra-scale-factor", [](Draft & d) -> auto& { return d.run.optimizer.muon.extra_scale_factor; },
          "Another factor on every update.")
          .above(0));
  add(choice(
      "--muon-coefficient-type", [](Draft & d) -> auto& { return d.run.optimizer.muon.coefficients; },
      {{"simple", spec::MuonCoefficients::simple},
       {"quintic", spec::MuonCoefficients::quintic},
       {"polar_express", spec::MuonCoefficients::polar_express},
       {"aol", spec::MuonCoefficients::aol}},
      "Coefficients of the iteration: 1, 5, 8 or 4 steps that repeat."));
  add(value(
          "--muon-num-ns-steps", [](Draft & d) -> auto& { return d.run.optimizer.muon.num_ns_steps; },
          "Steps of the iteration.")
          .in("steps")
          .at_least(1)
          .at_most(1000));
  add(choice(
      "--muon-tp-mode", [](Draft & d) -> auto& { return d.run.optimizer.muon.tp_mode; },
      {{"blockwise", spec::MuonTpMode::blockwise},
       {"duplicated", spec::MuonTpMode::duplicated},
       {"distributed", spec::MuonTpMode::distributed}},
      "Matrices cut by tensor parallelism: each part by itself, or the whole (every rank, or the work shared)."));
  add(choice(
      "--muon-scalar-optimizer", [](Draft & d) -> auto& { return d.run.optimizer.muon.scalar_optimizer; },
      {{"adam", spec::OptimizerKind::adam}, {"lion", spec::OptimizerKind::lion}},
      "What updates all but the matrices."));
  return rows;
}

}  // namespace

std::vector<Option> optimizer_options() {
  std::vector<Option> rows = learning_rate_rows();
  for (Option& row : update_rows()) rows.push_back(std::move(row));
  for (Option& row : muon_rows()) rows.push_back(std::move(row));
  for (Option& row : rows) row.topic = "Optimizer and schedules";
  return rows;
}

}  // namespace megatron::config
