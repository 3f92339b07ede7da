// Proof of the net: the comparison that all layouts pass fails as soon as one sum is forgotten, one shard is wrong, or
// one part of the norm is counted twice.
#include <gtest/gtest.h>

#include "losing_world.h"
#include "training_case.h"

namespace megatron::parity {
namespace {

using testing::Layout;
using testing::SmallOptions;
using testing::SmallResult;
using Mutation = std::function<void(train::RankParts&)>;

const Layout kEight = {2, 2, 2, false, 2}, kEightSharded = {2, 2, 2, true, 2};

/// Two layers and two steps: small enough for one run per mutation. The first step shows what is wrong in loss and
/// norm, the second what the update made of it.
spec::RunSpec mutant_run(const ModelChoice& model, spec::OptimizerKind optimizer) {
  spec::RunSpec run = base_run(model);
  run.model.num_layers = 2;
  run.batch.train_iters = 2;
  run.optimizer.kind = optimizer;
  if (optimizer == spec::OptimizerKind::sgd) run.optimizer.lr = 0.1;
  return run;
}

/// The net: one rank trains, then the layout.
class Net {
 public:
  explicit Net(const ModelChoice& model, spec::OptimizerKind optimizer = spec::OptimizerKind::adam)
      : run_(mutant_run(model, optimizer)), expected_(train_setup(run_, {Layout{1, 1, 1, false, 4}})) {}

  std::vector<std::string> differences_of(const Layout& layout, const SmallOptions& options) const {
    return differences(train_setup(run_, {layout}, options), expected_, run_.model, Level::close);
  }
  bool notices(const Layout& layout, const SmallOptions& options) const {
    return !differences_of(layout, options).empty();
  }
  bool notices(const Layout& layout, const Mutation& mutation) const {
    SmallOptions options;
    options.hooks.after_setup = mutation;
    return notices(layout, options);
  }

 private:
  spec::RunSpec run_;
  SmallResult expected_;
};

SmallOptions losing(const SumName& lost, SumLog* log) {
  SmallOptions options;
  options.wrap_world = [lost, log](std::unique_ptr<comm::World> world) {
    return std::make_unique<LosingWorld>(std::move(world), lost, log);
  };
  return options;
}

/// Every sum over ranks that a run makes is needed: each is lost once, on all ranks alike. Returns how many there are.
/// The summary of the step is lost elsewhere: ranks without a loss would wait for others.
std::size_t expect_every_sum_is_needed(const ModelChoice& model, const Layout& layout) {
  const Net net(model);
  SumLog log;
  const std::vector<std::string> sound = net.differences_of(layout, losing({}, &log));
  EXPECT_TRUE(sound.empty()) << joined(sound);
  for (const SumName& lost : log.names()) {
    if (lost.group == "world") continue;
    SCOPED_TRACE(str_cat(lost.operation, " ", lost.label, " in ", lost.group));
    if (lost.label.rfind("parameters_of_", 0) == 0) {
      EXPECT_THROW(net.notices(layout, losing(lost, nullptr)), Error);
    } else {
      EXPECT_TRUE(net.notices(layout, losing(lost, nullptr)));
    }
  }
  return log.names().size();
}

bool has_sum(const std::set<SumName>& names, const std::string& group, const std::string& operation) {
  return std::any_of(names.begin(), names.end(),
                     [&](const SumName& name) { return name.group == group && name.operation == operation; });
}

TEST(Mutation, TheLogSeesTheSumsOfAllAxes) {
  SumLog log;
  const Net net({false, true, 24, false});
  net.differences_of(kEightSharded, losing({}, &log));
  for (const char* group : {"tp", "dp", "pp"}) EXPECT_TRUE(has_sum(log.names(), group, "all_reduce")) << group;
  EXPECT_TRUE(has_sum(log.names(), "tp", "reduce_scatter"));
}

// Four linear layers per block forward or backward, embedding, head, two of the softmax, buckets, norm, tied table, the
// summary, and the parameters of stage and model.
TEST(Mutation, EverySumIsNeededGpt) { EXPECT_GE(expect_every_sum_is_needed({false, true, 24, false}, kEight), 16U); }

TEST(Mutation, EverySumIsNeededLlamaWithSequenceParallelism) {
  EXPECT_GE(expect_every_sum_is_needed({true, false, 1, true}, kEightSharded), 16U);
}

TEST(Mutation, TheSummaryOfAStepIsNeeded) {
  const Net net({false, true, 24, false});
  const Layout replicas = {1, 1, 2, false, 2};
  SumLog log;
  EXPECT_FALSE(net.notices(replicas, losing({}, &log)));
  std::size_t lost_sums = 0;
  for (const SumName& lost : log.names())
    // What is only reported at the end of a run (run_figures, run_flops) enters no number of the training.
    if (lost.group == "world" && lost.label.rfind("run_", 0) != 0) {
      EXPECT_TRUE(net.notices(replicas, losing(lost, nullptr))) << lost.label;
      ++lost_sums;
    }
  EXPECT_EQ(lost_sums, 1U);
}

/// Parameters of the whole model, by name.
std::vector<std::string> parameter_names(const ModelChoice& model) {
  spec::RunSpec run = mutant_run(model, spec::OptimizerKind::adam);
  run.batch.train_iters = 0;
  std::vector<std::string> names;
  for (const auto& [name, values] : train_setup(run, {Layout{1, 1, 1, false, 4}}).weights) names.push_back(name);
  return names;
}

nn::Parameter* find(train::RankParts& parts, const std::string& name) {
  for (nn::Parameter* parameter : parts.model().parameters())
    if (parameter->name == name && !parameter->tied_use) return parameter;
  return nullptr;
}

/// One rank of one replica has a wrong piece: its rows moved on by one, or, where all rows are equal at the start, not
/// equal any more. The weights that are compared come from the other replica.
Mutation wrong_shard(const std::string& name) {
  return [name](train::RankParts& parts) {
    nn::Parameter* parameter = find(parts, name);
    if (parameter == nullptr || parts.mesh().dp.rank() != 1 || parts.mesh().tp.rank() != 1) return;
    const std::int64_t cols = parameter->sharding.local_cols, size = parameter->value.numel();
    auto* values = parameter->value.data<float>();
    if (parameter->sharding.num_dims == 2) {
      std::rotate(values, values + cols, values + size);
    } else {
      for (std::int64_t i = 0; i < size; i += 2) values[i] += 0.1F;
    }
  };
}

TEST(Mutation, OneWrongShardIsNoticed) {
  for (const ModelChoice& model : {ModelChoice{false, true, 24, false}, ModelChoice{true, false, 1, true}}) {
    const Net net(model);
    std::size_t mutants = 0;
    for (const std::string& name : parameter_names(model)) {
      EXPECT_TRUE(net.notices(kEightSharded, wrong_shard(name))) << model_text(model) << " " << name;
      ++mutants;
    }
    EXPECT_GE(mutants, 14U);
  }
}

/// A piece that two tensor-parallel ranks hold is counted by both.
Mutation owned_by_all(const std::string& name) {
  return [name](train::RankParts& parts) {
    if (nn::Parameter* parameter = find(parts, name); parameter != nullptr)
      for (spec::Piece& piece : parameter->sharding.pieces) piece.owned = true;
  };
}

/// A piece is counted twice by its owner, as a tied table would be on first and last stage.
Mutation listed_twice(const std::string& name) {
  return [name](train::RankParts& parts) {
    nn::Parameter* parameter = find(parts, name);
    if (parameter != nullptr) parameter->sharding.pieces.push_back(parameter->sharding.pieces.front());
  };
}

/// The gradient of a norm is summed over tensor-parallel ranks that all have the whole of it.
Mutation summed_twice(const std::string& name) {
  return [name](train::RankParts& parts) {
    if (nn::Parameter* parameter = find(parts, name); parameter != nullptr)
      parameter->grad_reduction = nn::GradReduction::tensor_parallel;
  };
}

TEST(Mutation, APartOfTheNormCountedTwiceIsNoticed) {
  const Net gpt({false, true, 24, false}), llama({true, false, 1, false});
  for (const Layout& layout : {kEight, kEightSharded}) {
    for (const char* name :
         {"decoder.layers.0.input_layernorm.weight", "decoder.final_layernorm.weight", "decoder.final_layernorm.bias",
          "decoder.layers.0.mlp.linear_fc2.bias", "embedding.position_embeddings.weight"})
      EXPECT_TRUE(gpt.notices(layout, owned_by_all(name))) << name;
    for (const char* name : {"decoder.final_layernorm.weight", "decoder.layers.1.self_attention.linear_qkv.weight"})
      EXPECT_TRUE(llama.notices(layout, owned_by_all(name))) << name;
    EXPECT_TRUE(gpt.notices(layout, listed_twice("embedding.word_embeddings.weight")));
  }
}

// With SGD the update shows the size of a gradient, however small its part in the norm.
TEST(Mutation, TheGradientOfANormLayerCountedTwiceIsNoticed) {
  const Net gpt({false, true, 24, false}, spec::OptimizerKind::sgd);
  const Net llama({true, false, 1, false}, spec::OptimizerKind::sgd);
  for (const char* name : {"decoder.layers.0.input_layernorm.weight", "decoder.layers.1.pre_mlp_layernorm.weight",
                           "decoder.final_layernorm.weight"}) {
    EXPECT_TRUE(gpt.notices(kEight, summed_twice(name))) << name;
    EXPECT_TRUE(llama.notices(kEight, summed_twice(name))) << name;
  }
  EXPECT_TRUE(gpt.notices(kEight, summed_twice("decoder.layers.1.pre_mlp_layernorm.bias")));
}

}  // namespace
}  // namespace megatron::parity
