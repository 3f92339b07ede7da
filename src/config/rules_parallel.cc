#include "config/nearest.h"
#include "config/rules.h"

namespace megatron::config {
namespace {

void world(RuleContext& c) {
  const auto& p = c.run().parallel;
  const std::int64_t product = std::int64_t{p.tensor_parallel} * p.pipeline_parallel * p.context_parallel;
  // A world size out of its range has been reported where it was read.
  if (c.given("--world-size") && c.switches().world_size > 0 && c.switches().world_size != p.world_size)
    c.error({"--world-size"}, str_cat("the launcher started ", p.world_size, " processes; nearest: ", p.world_size));
  if (p.world_size % product != 0)
    c.error({"--world-size", "--tensor-model-parallel-size", "--pipeline-model-parallel-size"},
            str_cat("world size ", p.world_size, " not divisible by tensor ", p.tensor_parallel, " x pipeline ",
                    p.pipeline_parallel, " x context ", p.context_parallel, " = ", product,
                    "; nearest: ", nearest_multiples(p.world_size, product)));
}

void backend(RuleContext& c) {
  if (c.switches().distributed_backend == "mpi")
    c.notice("--distributed-backend mpi: mpirun or srun must start the run; Megatron's own values are nccl, gloo");
}

void sequence_parallel(RuleContext& c) {
  const auto& p = c.run().parallel;
  const std::int64_t cut = std::int64_t{p.tensor_parallel} * p.context_parallel, length = c.run().model.seq_length;
  if (p.sequence_parallel && length % cut != 0)
    c.error({"--seq-length", "--sequence-parallel", "--tensor-model-parallel-size"},
            str_cat(length, " tokens do not divide over ", cut, " ranks; nearest: ", nearest_multiples(length, cut)));
}

void data_parallel_sharding(RuleContext& c) {
  const auto& p = c.run().parallel;
  if (c.given("--data-parallel-sharding-strategy") && !p.use_megatron_fsdp)
    c.error(
        {"--data-parallel-sharding-strategy"},
        "needs --use-megatron-fsdp; nearest: leave it out (with --use-distributed-optimizer optimizer state alone is "
        "shared out)");
  if (!p.use_megatron_fsdp) return;
  if (p.use_distributed_optimizer && p.sharding() == spec::ShardingStrategy::no_shard)
    c.error({"--use-distributed-optimizer", "--data-parallel-sharding-strategy"},
            "no_shard shares nothing out, the distributed optimizer does; nearest: optim");
}

void layer_split(RuleContext& c) {
  const auto& p = c.run().parallel;
  const std::int64_t layers = c.run().model.num_layers;
  // A split that an unknown option asks for must not be replaced by one of our own making.
  if (layers > 0 && layers % p.pipeline_parallel != 0 && c.given_unknown("--pp-partition-method"))
    c.error({"--num-layers", "--pipeline-model-parallel-size"},
            str_cat(layers, " layers not divisible by pipeline size ", p.pipeline_parallel,
                    "; --pp-partition-method is no option that could split them"));
}

void saved_activations(RuleContext& c) {
  const auto& run = c.run();
  if (!run.recompute.distribute_saved_activations) return;
  if (run.recompute.granularity != spec::RecomputeGranularity::full || run.parallel.tensor_parallel == 1) {
    c.error({"--distribute-saved-activations"},
            "needs --recompute-granularity full and a tensor parallel size above 1");
  } else if (run.parallel.sequence_parallel) {
    c.error({"--distribute-saved-activations", "--sequence-parallel"},
            "with sequence parallelism each rank holds its part already; nearest: leave it out");
  } else if (run.batch.micro_batch_size * run.model.seq_length * run.model.hidden_size % run.parallel.tensor_parallel !=
             0) {
    c.error({"--distribute-saved-activations", "--tensor-model-parallel-size"},
            "a micro-batch's hidden states do not divide over the ranks; nearest: leave it out");
  }
}

void experts(RuleContext& c) {
  const auto& d = c.draft().described.moe;
  const auto& p = c.run().parallel;
  if (!d.num_experts) return;
  const std::int64_t etp = d.expert_tensor_parallel.value_or(p.tensor_parallel);
  const std::int64_t product = etp * p.expert_parallel * p.pipeline_parallel;
  if (p.world_size % product != 0)
    c.error({"--world-size", "--expert-model-parallel-size"},
            str_cat("world size ", p.world_size, " not divisible by expert tensor ", etp, " x expert ",
                    p.expert_parallel, " x pipeline ", p.pipeline_parallel, " = ", product,
                    "; nearest: ", nearest_multiples(p.world_size, product)));
  if (*d.num_experts % p.expert_parallel != 0)
    c.error({"--num-experts", "--expert-model-parallel-size"},
            str_cat(*d.num_experts, " experts do not divide over ", p.expert_parallel,
                    " ranks; nearest: ", nearest_divisors(p.expert_parallel, *d.num_experts)));
  const bool sinkhorn = c.word("--moe-router-load-balancing-type") == "sinkhorn";
  if (d.router_topk == 1 && d.router_score_function == "softmax" && !d.router_pre_softmax && !sinkhorn)
    c.error({"--moe-router-topk"}, "top-k 1 with softmax scores needs --moe-router-pre-softmax");
  if (d.router_topk > *d.num_experts)
    c.error({"--moe-router-topk", "--num-experts"}, str_cat("only ", *d.num_experts, " experts to choose from"));
  if (d.router_enable_expert_bias && d.router_score_function == "softmax")
    c.error({"--moe-router-enable-expert-bias"}, "needs --moe-router-score-function sigmoid or sqrtsoftplus");
  if (p.tensor_parallel > 1 && !p.sequence_parallel)
    c.error({"--num-experts", "--tensor-model-parallel-size"},
            "experts with tensor parallelism need --sequence-parallel");
}

void context(RuleContext& c) {
  const std::int64_t cp = c.run().parallel.context_parallel, length = c.run().model.seq_length;
  if (cp > 1 && length % (2 * cp) != 0)
    c.error({"--seq-length", "--context-parallel-size"},
            str_cat(length, " tokens must be a multiple of 2 x context size = ", 2 * cp,
                    "; nearest: ", nearest_multiples(length, 2 * cp)));
}

}  // namespace

std::vector<Rule> parallel_rules() {
  return {{"world", world},
          {"backend", backend},
          {"sequence parallel", sequence_parallel},
          {"layer split", layer_split},
          {"data-parallel sharding", data_parallel_sharding},
          {"saved activations", saved_activations},
          {"experts", experts},
          {"context", context}};
}

}  // namespace megatron::config
