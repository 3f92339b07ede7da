#include "config/option_table.h"

namespace megatron::config {

std::vector<Option> parallel_options() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(value(
          "--world-size", [](Draft & d) -> auto& { return d.switches.world_size; },
          "Ranks of the run; unset: the launcher's processes, else tensor x pipeline x context parallel size.")
          .in("ranks")
          .at_least(1)
          .at_most(1e7)
          .our_own());
  add(value(
          "--tensor-model-parallel-size", [](Draft & d) -> auto& { return d.run.parallel.tensor_parallel; },
          "Ranks that share each layer.")
          .in("ranks")
          .at_least(1)
          .at_most(65536));
  add(value(
          "--pipeline-model-parallel-size", [](Draft & d) -> auto& { return d.run.parallel.pipeline_parallel; },
          "Stages of consecutive layers.")
          .in("ranks")
          .at_least(1)
          .at_most(65536));
  add(flag(
      "--sequence-parallel", [](Draft & d) -> auto& { return d.run.parallel.sequence_parallel; },
      "Norms, dropout and residuals on 1/TP of the tokens."));
  add(value(
          "--decoder-first-pipeline-num-layers",
          [](Draft & d) -> auto& { return d.run.parallel.decoder_first_pipeline_num_layers; },
          "Layers of the first stage.")
          .in("layers")
          .at_least(1));
  add(value(
          "--decoder-last-pipeline-num-layers",
          [](Draft & d) -> auto& { return d.run.parallel.decoder_last_pipeline_num_layers; },
          "Layers of the last stage.")
          .in("layers")
          .at_least(1));
  add(flag(
      "--account-for-embedding-in-pipeline-split",
      [](Draft & d) -> auto& { return d.run.parallel.account_for_embedding_in_pipeline_split; },
      "The embedding counts as a layer of the first stage."));
  add(flag(
      "--account-for-loss-in-pipeline-split",
      [](Draft & d) -> auto& { return d.run.parallel.account_for_loss_in_pipeline_split; },
      "The loss counts as a layer of the last stage."));
  add(choice(
          "--pipeline-schedule", [](Draft & d) -> auto& { return d.run.parallel.schedule; },
          {{"1f1b", spec::PipelineSchedule::one_f_one_b}, {"gpipe", spec::PipelineSchedule::gpipe}},
          "Order of forward and backward passes over the stages.")
          .our_own());
  add(flag(
      "--use-tp-pp-dp-mapping", [](Draft & d) -> auto& { return d.run.parallel.use_tp_pp_dp_mapping; },
      "Pipeline neighbours before data-parallel neighbours in the rank order."));
  add(value(
          "--ddp-bucket-size", [](Draft & d) -> auto& { return d.run.parallel.ddp_bucket_size; },
          "Elements of a gradient bucket; unset: max(40e6, 1e6 x data parallel size).")
          .in("elements")
          .at_least(1));
  add(text_choice(
      "--distributed-backend", [](Draft & d) -> auto& { return d.switches.distributed_backend; },
      {"nccl", "gloo", "local", "mpi"},
      "local: ranks are threads; mpi: ranks are processes of a launcher; nccl and gloo: as found."));
  add(value(
          "--distributed-timeout-minutes",
          [](Draft & d) -> auto& { return d.run.parallel.distributed_timeout_minutes; },
          "The watchdog ends a run whose ranks wait longer than this.")
          .in("minutes")
          .above(0));
  add(value(
          "--distributed-timeout-seconds",
          [](Draft & d) -> auto& { return d.run.parallel.distributed_timeout_seconds; }, "The same in seconds; wins.")
          .in("seconds")
          .above(0)
          .our_own());
  add(value(
          "--threads-per-rank", [](Draft & d) -> auto& { return d.run.parallel.threads_per_rank; },
          "Threads of each rank; 0: usable cores / ranks, at least 1.")
          .in("threads")
          .at_least(0)
          .our_own());
  for (Option& row : rows) row.topic = "Parallelism";
  return rows;
}

std::vector<Option> optimizer_options() {
  using spec::DecayStyle;
  using spec::WeightDecayStyle;
  using spec::WsdDecayStyle;
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(choice(
          "--optimizer", [](Draft & d) -> auto& { return d.run.optimizer.kind; },
          {{"adam", spec::OptimizerKind::adam}, {"sgd", spec::OptimizerKind::sgd}}, "adam is AdamW.")
          .unbuilt_values({"muon", "dist_muon", "lion", "soap", "adaptive_muon"}));
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
          .at_most(1));
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
  add(value(
          "--weight-decay", [](Draft & d) -> auto& { return d.run.optimizer.weight_decay; },
          "Decoupled weight decay; biases and norms have none.")
          .at_least(0));
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
          .at_most(1));
  add(value(
          "--adam-beta2", [](Draft & d) -> auto& { return d.run.optimizer.adam_beta2; }, "Decay of the second moment.")
          .at_least(0)
          .at_most(1));
  add(value(
          "--adam-eps", [](Draft & d) -> auto& { return d.run.optimizer.adam_eps; },
          "Added to the root of the second moment.")
          .at_least(0));
  add(value(
          "--sgd-momentum", [](Draft & d) -> auto& { return d.run.optimizer.sgd_momentum; }, "Momentum of SGD.")
          .at_least(0)
          .at_most(1));
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
  for (Option& row : rows) row.topic = "Optimizer and schedules";
  return rows;
}

}  // namespace megatron::config
