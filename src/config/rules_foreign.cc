#include "config/rules.h"

namespace megatron::config {
namespace {

void determinism(RuleContext& c) {
  if (!c.given("--deterministic-mode")) return;
  for (std::string_view name : {"--tp-comm-overlap", "--cross-entropy-loss-fusion"})
    if (c.given(name)) c.exclusive("--deterministic-mode", name);
}

void overlap(RuleContext& c) {
  if (c.given("--tp-comm-overlap") && !c.run().parallel.sequence_parallel)
    c.error({"--tp-comm-overlap"}, "--tp-comm-overlap needs sequence parallelism (which tensor size 1 turns off)");
  for (std::string_view name : {"--overlap-grad-reduce", "--overlap-param-gather"})
    if (c.user_asks(name) && c.user_asks("--no-overlap")) c.notice(str_cat(name, ": no effect beside --no-overlap"));
  if (!c.given("--overlap-param-gather")) return;
  if (c.run().parallel.use_megatron_fsdp && c.run().parallel.sharding() == spec::ShardingStrategy::no_shard)
    c.notice(
        "--overlap-param-gather: no effect with --data-parallel-sharding-strategy no_shard, which gathers nothing");
  if (!c.given("--use-distributed-optimizer") && !c.given("--use-megatron-fsdp") && !c.given("--use-torch-fsdp2") &&
      c.word("--optimizer").find("muon") == std::string::npos)
    c.error({"--overlap-param-gather"}, "needs --use-distributed-optimizer");
  if (!c.given("--overlap-grad-reduce")) c.error({"--overlap-param-gather"}, "needs --overlap-grad-reduce");
}

void fused_loss(RuleContext& c) {
  if (c.given("--cross-entropy-loss-fusion") && c.word("--cross-entropy-fusion-impl") == "te")
    c.error(
        {"--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl"},
        "--cross-entropy-loss-fusion with --cross-entropy-fusion-impl te is switched off upstream; nearest: native");
  if (c.given("--fp16-lm-cross-entropy") && !c.switches().fp16) c.error({"--fp16-lm-cross-entropy"}, "needs --fp16");
}

void families(RuleContext& c) {
  for (std::string_view name : {"--decoder-num-layers", "--decoder-seq-length"})
    if (c.given(name)) c.error({name}, "belongs to a t5 model, not a decoder-only Transformer");
}

void formats(RuleContext& c) {
  if (c.given("--fp8-format") && c.given("--fp4-format")) c.exclusive("--fp8-format", "--fp4-format");
}

}  // namespace

std::vector<Rule> foreign_rules() {
  return {{"determinism", determinism},
          {"overlap", overlap},
          {"fused loss", fused_loss},
          {"families", families},
          {"formats", formats}};
}

}  // namespace megatron::config
