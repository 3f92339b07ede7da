// What `validate --json` predicts and what the last line of `train --log-json` measured: bytes on the wire exactly,
// memory within 3 %.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/shell_command.h"
#include "support/temporary_folder.h"

namespace megatron::cli {
namespace {

using nlohmann::json;
using testing::TemporaryFolder;

const char* const kModel =
    " --num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64"
    " --micro-batch-size 2 --global-batch-size 16 --train-iters 2 --lr 1e-3 --mock-data --tokenizer-type NullTokenizer"
    " --vocab-size 256 --threads-per-rank 1 --eval-iters 1 ";

json predicted(const std::string& options) {
  const auto result =
      testing::run_command(std::string("'") + MEGATRON_BINARY + "' validate --json" + kModel + options + " 2>&1");
  EXPECT_EQ(result.status, 0) << result.output;
  return json::parse(result.output);
}

json measured(const std::string& options) {
  const TemporaryFolder folder;
  const std::string log = folder / "log";
  const auto result = testing::run_command(std::string("'") + MEGATRON_BINARY + "' train --log-json '" + log + "'" +
                                           kModel + options + " 2>&1");
  EXPECT_EQ(result.status, 0) << result.output;
  std::ifstream in(log);
  std::string line, last;
  while (std::getline(in, line)) last = line;
  return json::parse(last).at("summary");
}

std::int64_t largest(const json& ranks, const std::string& kind) {
  std::int64_t most = 0;
  for (const json& rank : ranks) most = std::max(most, rank.at(kind).get<std::int64_t>());
  return most;
}

void expect_agreement(const json& plan, const json& summary) {
  const json& ranks = plan.at("memory_bytes");
  const json& peaks = summary.at("peak_bytes");
  ASSERT_EQ(ranks.size(), plan.at("world_size").get<std::size_t>());
  EXPECT_EQ(plan.at("communication_bytes_per_step"), summary.at("communication_bytes_per_step"));
  std::int64_t whole = 0, described = 0;
  for (const auto& [kind, bytes] : peaks.items()) whole += bytes.get<std::int64_t>();
  for (const char* kind :
       {"parameters", "main_parameters", "gradients", "optimizer", "activations", "packed", "communication"}) {
    ASSERT_TRUE(peaks.contains(kind)) << kind;
    const std::int64_t mine = largest(ranks, kind), seen = peaks.at(kind).get<std::int64_t>();
    described += mine;
    // What is hardly any memory need not agree.
    const double allowed = std::max(0.03 * static_cast<double>(seen), 0.01 * static_cast<double>(whole));
    EXPECT_NEAR(static_cast<double>(mine), static_cast<double>(seen), allowed) << kind;
  }
  EXPECT_EQ(peaks.size(), 7U);
  EXPECT_EQ(ranks.front().size(), 7U);
  EXPECT_NEAR(static_cast<double>(described) / static_cast<double>(whole), 1.0, 0.03);
  EXPECT_GT(summary.at("peak_rss_bytes").get<std::int64_t>(), whole);
  EXPECT_GT(summary.at("model_flops").get<std::int64_t>(), 0);
}

class CostsAgree : public ::testing::TestWithParam<const char*> {};

TEST_P(CostsAgree, PredictedAndMeasured) { expect_agreement(predicted(GetParam()), measured(GetParam())); }

INSTANTIATE_TEST_SUITE_P(
    Layouts, CostsAgree,
    ::testing::Values(
        "", "--bf16 --recompute-granularity selective --recompute-modules core_attn layernorm mlp",
        "--tensor-model-parallel-size 2 --sequence-parallel --qk-layernorm",
        "--tensor-model-parallel-size 2 --recompute-granularity full --recompute-method uniform"
        " --recompute-num-layers 2 --distribute-saved-activations",
        "--pipeline-model-parallel-size 2 --hidden-dropout 0 --attention-dropout 0",
        "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1",
        "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --recompute-granularity full"
        " --recompute-method uniform --recompute-num-layers 1 --bf16 --fp32-residual-connection",
        "--pipeline-model-parallel-size 2 --num-layers 8 --num-virtual-stages-per-pipeline-rank 2",
        "--pipeline-model-parallel-size 2 --pipeline-schedule zb-auto --train-iters 7",
        // A batch that the run does not reach, and one that it does.
        "--rampup-batch-size 8 8 1000 --pipeline-model-parallel-size 2 --pipeline-schedule gpipe",
        "--rampup-batch-size 8 8 8 --tensor-model-parallel-size 2",
        // Every step is redone.
        "--pipeline-model-parallel-size 2 --pipeline-post-validation --clip-grad 1e-3 --train-iters 4",
        "--world-size 4 --pipeline-model-parallel-size 2 --pipeline-post-validation --clip-grad 1e-3 --train-iters 4"
        " --pipeline-schedule zb-h1 --use-distributed-optimizer --log-num-zeros-in-grad",
        "--world-size 4 --pipeline-model-parallel-size 2 --use-megatron-fsdp --bf16 --grad-reduce-in-bf16"
        " --ddp-bucket-size 10000",
        "--world-size 2 --use-distributed-optimizer", "--world-size 2 --bf16 --grad-reduce-in-bf16",
        "--world-size 2 --reduce-every-microbatch",
        "--world-size 2 --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads",
        "--world-size 2 --use-megatron-fsdp --untie-embeddings-and-output-weights --bf16",
        "--world-size 8 --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2"
        " --pipeline-schedule zb-h1 --use-megatron-fsdp --bf16 --swiglu --normalization RMSNorm --group-query-attention"
        " --num-query-groups 1 --position-embedding-type rope --disable-bias-linear",
        "--world-size 4 --tensor-model-parallel-size 2 --optimizer muon --use-distributed-optimizer"));

TEST(Costs, StashesAndRecomputedFlopsAreMeasured) {
  const json plain = measured("--pipeline-model-parallel-size 2 --pipeline-schedule gpipe");
  EXPECT_EQ(plain.at("peak_chunk_stashes"), 8);
  EXPECT_EQ(plain.at("recomputed_flops"), 0);
  const json again = measured(
      "--pipeline-model-parallel-size 2 --recompute-granularity full --recompute-method uniform "
      "--recompute-num-layers 1");
  EXPECT_EQ(again.at("peak_chunk_stashes"), 2);
  EXPECT_EQ(again.at("model_flops"), plain.at("model_flops"));
  // All layers' forward passes once more: less than a third of forward and backward with the head.
  const double share = again.at("recomputed_flops").get<double>() / again.at("model_flops").get<double>();
  EXPECT_GT(share, 0.25);
  EXPECT_LT(share, 1.0 / 3.0);
  EXPECT_LT(again.at("peak_bytes").at("activations"), plain.at("peak_bytes").at("activations"));
}

/// Activations of 16-bit runs are half of float32's but for statistics, sums and losses, which stay float32.
TEST(Costs, SixteenBitActivationsAreHalf) {
  const auto activations = [](const char* options) {
    return measured(options).at("peak_bytes").at("activations").get<double>();
  };
  EXPECT_NEAR(activations("--bf16") / activations(""), 0.5, 0.02);
}

}  // namespace
}  // namespace megatron::cli
