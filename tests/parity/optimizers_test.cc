// Each optimizer under other layouts: the same numbers as on one rank, and the same bits however the stages are cut.
#include <gtest/gtest.h>

#include "training_case.h"

namespace megatron::parity {
namespace {

using spec::OptimizerKind;
using testing::Layout;
using testing::SmallResult;

struct OptimizerCase {
  std::string name;
  spec::OptimizerSpec optimizer;
  ModelChoice model;
};

spec::OptimizerSpec optimizer_of(OptimizerKind kind, double lr) {
  spec::OptimizerSpec spec = base_run({}).optimizer;
  spec.kind = kind;
  spec.lr = lr;
  return spec;
}

std::vector<OptimizerCase> cases() {
  // Without biases in attention no gradient is exactly 0, whose rounding a sign would blow up.
  const ModelChoice gpt = {false, true, 24, false}, llama = {true, false, 2, false};
  std::vector<OptimizerCase> list;
  const auto add = [&](const char* name, const spec::OptimizerSpec& spec, const ModelChoice& model) {
    list.push_back({name, spec, model});
  };
  spec::OptimizerSpec spec = optimizer_of(OptimizerKind::adam, 2e-4);
  spec.decoupled_weight_decay = false;
  spec.weight_decay = 0.1;
  add("AdamWithL2", spec, gpt);
  spec = optimizer_of(OptimizerKind::sgd, 0.1);
  spec.sgd_nesterov = true;
  add("Nesterov", spec, gpt);
  add("Lion", optimizer_of(OptimizerKind::lion, 1e-4), llama);
  add("Muon", optimizer_of(OptimizerKind::muon, 2e-4), gpt);
  spec = optimizer_of(OptimizerKind::muon, 2e-4);
  spec.muon.tp_mode = spec::MuonTpMode::distributed;
  spec.muon.nesterov = true;
  spec.muon.scalar_optimizer = OptimizerKind::lion;
  add("MuonSharedWork", spec, llama);
  spec.muon.tp_mode = spec::MuonTpMode::duplicated;
  spec.muon.split_qkv = false;
  spec.muon.scale_mode = spec::MuonScaleMode::unit_rms_norm;
  add("MuonWithoutSplit", spec, llama);
  return list;
}

spec::RunSpec run_with(const OptimizerCase& c) {
  spec::RunSpec run = base_run(c.model);
  run.batch.train_iters = 3;
  run.optimizer = c.optimizer;
  return run;
}

class Optimizers : public ::testing::TestWithParam<OptimizerCase> {};

TEST_P(Optimizers, EveryLayoutGivesTheNumbersOfOneRank) {
  const spec::RunSpec run = run_with(GetParam());
  const SmallResult one = train_setup(run, {Layout{1, 1, 1, false, 2}});
  ASSERT_EQ(one.steps.size(), 3U);
  for (const Layout& layout :
       {Layout{2, 2, 2, true, 1}, Layout{8, 1, 1, false, 4}, Layout{1, 4, 2, false, 1}, Layout{3, 1, 2, true, 2}}) {
    if (GetParam().model.groups % layout.tp != 0 && layout.tp % GetParam().model.groups != 0) continue;
    const SmallResult other = train_setup(run, {layout});
    const std::vector<std::string> found = differences(other, one, run.model, Level::close);
    EXPECT_TRUE(found.empty()) << testing::layout_text(layout) << "\n" << joined(found);
  }
}

TEST_P(Optimizers, SharedStateKeepsTheBits) {
  const spec::RunSpec run = run_with(GetParam());
  for (const auto strategy : {spec::ShardingStrategy::optim, spec::ShardingStrategy::optim_grads_params}) {
    parity::Setup plain = {Layout{2, 1, 2, true, 1}};
    plain.reduce_every_microbatch = strategy != spec::ShardingStrategy::optim;
    parity::Setup shards = plain;
    shards.sharding = strategy;
    shards.bucket_size = 3000;
    const SmallResult a = train_setup(run, plain), b = train_setup(run, shards);
    EXPECT_TRUE(differences(a, b, run.model, Level::bits).empty()) << joined(differences(a, b, run.model, Level::bits));
  }
}

TEST_P(Optimizers, StageCutsKeepTheBits) {
  const spec::RunSpec run = run_with(GetParam());
  const parity::Setup flat = {Layout{2, 1, 2, true, 1}};
  const parity::Setup stages = {Layout{2, 2, 2, true, 1}, spec::PipelineSchedule::gpipe, 2, 4711, 1000};
  const SmallResult a = train_setup(run, flat), b = train_setup(run, stages);
  EXPECT_TRUE(differences(a, b, run.model, Level::bits).empty()) << joined(differences(a, b, run.model, Level::bits));
}

INSTANTIATE_TEST_SUITE_P(Parity, Optimizers, ::testing::ValuesIn(cases()), [](const auto& c) { return c.param.name; });

/// The ranks that share the work of a matrix get the bits of ranks that each do all of it.
TEST(MuonModes, AgreeToTheBit) {
  OptimizerCase c = cases()[3];
  const spec::RunSpec run = run_with(c);
  spec::RunSpec shared = run;
  shared.optimizer.muon.tp_mode = spec::MuonTpMode::distributed;
  const parity::Setup setup = {Layout{4, 1, 2, true, 1}};
  const SmallResult a = train_setup(run, setup), b = train_setup(shared, setup);
  EXPECT_TRUE(differences(a, b, run.model, Level::bits).empty()) << joined(differences(a, b, run.model, Level::bits));
}

}  // namespace
}  // namespace megatron::parity
