#include "config/option_table.h"

namespace megatron::config {
namespace {

/// What data-parallel ranks exchange and share out.
std::vector<Option> data_parallel_rows() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(value(
          "--ddp-bucket-size", [](Draft & d) -> auto& { return d.run.parallel.ddp_bucket_size; },
          "Elements of a gradient bucket; unset: max(40e6, 1e6 x data parallel size).")
          .in("elements")
          .at_least(1));
  add(flag(
      "--use-distributed-optimizer", [](Draft & d) -> auto& { return d.run.parallel.use_distributed_optimizer; },
      "Optimizer state is shared out over data-parallel ranks (ZeRO-1)."));
  add(flag(
      "--use-megatron-fsdp", [](Draft & d) -> auto& { return d.run.parallel.use_megatron_fsdp; },
      "Data-parallel ranks share out what --data-parallel-sharding-strategy names."));
  add(choice(
      "--data-parallel-sharding-strategy",
      [](Draft & d) -> auto& { return d.run.parallel.data_parallel_sharding_strategy; },
      {{"no_shard", spec::ShardingStrategy::no_shard},
       {"optim", spec::ShardingStrategy::optim},
       {"optim_grads", spec::ShardingStrategy::optim_grads},
       {"optim_grads_params", spec::ShardingStrategy::optim_grads_params}},
      "With --use-megatron-fsdp: ZeRO-0, 1, 2 or 3."));
  add(flag(
          "--reduce-every-microbatch", [](Draft & d) -> auto& { return d.run.parallel.reduce_every_microbatch; },
          "Gradients are added over data-parallel ranks after every micro-batch, as optim_grads does: same bits then.")
          .our_own());
  add(off_flag(
          "--no-overlap", "overlap", [](Draft & d) -> auto& { return d.run.parallel.overlap; },
          "Gradients are reduced after backward, parameters gathered before forward; same bits, for comparison.")
          .our_own());
  return rows;
}

}  // namespace

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
  add(flag(
      "--use-tp-pp-dp-mapping", [](Draft & d) -> auto& { return d.run.parallel.use_tp_pp_dp_mapping; },
      "Pipeline neighbours before data-parallel neighbours in the rank order."));
  for (Option& row : data_parallel_rows()) rows.push_back(std::move(row));
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
          .at_most(1024)
          .our_own());
  for (Option& row : rows) row.topic = "Parallelism";
  return rows;
}

}  // namespace megatron::config
