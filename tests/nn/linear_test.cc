#include "nn/linear.h"

#include "support/grad_check.h"

namespace megatron {
namespace {

using testing::Cut;
using testing::LayerCase;

const nn::Initializer kInit = {nn::Initializer::Kind::normal, 0.02};

LayerCase column_case(bool bias) {
  LayerCase c;
  c.in_width = 8;
  c.out_width = 12;
  c.out = Cut::columns;
  c.make = [bias](const nn::LayerSetup& setup) {
    const int rank = setup.tp.rank(), size = setup.tp.size();
    return testing::bind_layer<nn::ColumnParallelLinear>(
        setup, std::string("fc"), spec::column_linear(8, 12, bias, size), spec::row_shard(2, 12, 12, 8, rank, size),
        spec::row_shard(1, 12, 12, 1, rank, size), kInit);
  };
  return c;
}

LayerCase row_case(bool bias) {
  LayerCase c;
  c.in_width = 12;
  c.out_width = 8;
  c.in = Cut::columns;
  c.make = [bias](const nn::LayerSetup& setup) {
    return testing::bind_layer<nn::RowParallelLinear>(setup, std::string("proj"),
                                                      spec::row_linear(12, 8, bias, setup.tp.size()), kInit);
  };
  return c;
}

TEST(ColumnParallelLinear, HasTheGradientOfWhatItComputes) {
  testing::check_layer_everywhere(column_case(false));
  testing::check_layer_everywhere(column_case(true));
  testing::check_layer(column_case(true), 4, true);
}

// The bias is added by the caller (fused with dropout and residual), so only weight and input count here.
TEST(RowParallelLinear, HasTheGradientOfWhatItComputes) {
  testing::check_layer_everywhere(row_case(false));
  testing::check_layer(row_case(false), 4, true);
}

TEST(RowParallelLinear, SumsItsBiasGradientOverTheTokensItHolds) {
  for (const bool sequence_parallel : {false, true}) {
    testing::Gatherer gatherer;
    testing::run_mesh(testing::make_parallel(2, 1, 1, sequence_parallel), [&](mesh::Rank& rank) {
      const nn::LayerSetup setup = {rank.exec.allocator(), rank.mesh.tp, sequence_parallel, DType::float64};
      nn::RowParallelLinear layer(setup, "proj", spec::row_linear(4, 3, true, 2), kInit);
      std::vector<nn::Parameter*> parameters;
      layer.collect(parameters);
      testing::allocate_gradients(rank.exec, parameters);
      testing::scatter_into(*parameters[0], testing::test_values(1, 12));
      nn::MicroBatch batch = testing::make_batch(1, 0, 2, 3, 5);
      testing::place_batch(batch, rank, sequence_parallel);
      nn::WeightGradQueue queue(rank.exec, nullptr);
      nn::Pass pass{rank, rank.exec, batch, nn::Mode::train, true, queue};
      Tensor x = rank.exec.zeros({6, 2}, DType::float64);
      nn::RowParallelLinear::Stash stash;
      layer.forward(pass, x, stash);
      Tensor dy = rank.exec.empty({batch.shard_end - batch.shard_begin, 3}, DType::float64);
      for (std::int64_t i = 0; i < dy.numel(); ++i)
        dy.data<double>()[i] = static_cast<double>(batch.shard_begin * 3 + i);  // element t·3 + o
      layer.backward(pass, std::move(dy), std::move(stash));
      gatherer.add_gradient(*parameters[1]);
      const auto want = sequence_parallel ? nn::GradReduction::tensor_parallel : nn::GradReduction::none;
      EXPECT_EQ(parameters[1]->grad_reduction, want);
      EXPECT_FALSE(parameters[1]->decay);
      EXPECT_TRUE(parameters[0]->decay);
    });
    // Σ_t (3t + o), t < 6
    EXPECT_EQ(gatherer.tensors.at("proj.bias"), (std::vector<double>{45, 51, 57}));
  }
}

TEST(ColumnParallelLinear, KeepsTheTokenShardOnly) {
  testing::run_mesh(testing::make_parallel(2, 1, 1, true), [&](mesh::Rank& rank) {
    const nn::LayerSetup setup = {rank.exec.allocator(), rank.mesh.tp, true, DType::float32};
    nn::ColumnParallelLinear layer(setup, "fc", spec::column_linear(4, 6, false, 2),
                                   spec::row_shard(2, 6, 6, 4, rank.mesh.tp.rank(), 2), {}, kInit);
    nn::MicroBatch batch = testing::make_batch(1, 0, 1, 8, 5);
    testing::place_batch(batch, rank, true);
    nn::WeightGradQueue queue(rank.exec, nullptr);
    nn::Pass pass{rank, rank.exec, batch, nn::Mode::train, true, queue};
    const Tensor x = rank.exec.zeros({4, 4}, DType::float32);
    nn::ColumnParallelLinear::Stash stash;
    EXPECT_EQ(layer.forward(pass, x, stash).shape(), (Shape{8, 3}));
    EXPECT_EQ(stash.x_TI.storage(), x.storage());
    pass.keep_stash = false;
    nn::ColumnParallelLinear::Stash none;
    layer.forward(pass, x, none);
    EXPECT_FALSE(none.x_TI.defined());
  });
}

/// Remembers what had been posted over the group when a gradient became ready.
struct PostedSink : nn::GradSink {
  explicit PostedSink(comm::RankContext& rank_context) : context(rank_context) {}
  void prepare(nn::Parameter&) override {}
  void grad_ready(nn::Parameter&) override { posted = context.traffic().bytes["tp"]; }
  comm::RankContext& context;
  std::map<std::string, std::int64_t> posted;
};

// The sum over ranks of dx is under way while the weight gradient is computed.
TEST(ColumnParallelLinear, StartsTheReductionBeforeTheWeightGradient) {
  for (const bool sequence_parallel : {false, true})
    testing::run_mesh(testing::make_parallel(2, 1, 1, sequence_parallel), [&](mesh::Rank& rank) {
      const nn::LayerSetup setup = {rank.exec.allocator(), rank.mesh.tp, sequence_parallel, DType::float32};
      nn::ColumnParallelLinear layer(setup, "fc", spec::column_linear(4, 6, false, 2),
                                     spec::row_shard(2, 6, 6, 4, rank.mesh.tp.rank(), 2), {}, kInit);
      std::vector<nn::Parameter*> parameters;
      layer.collect(parameters);
      testing::scatter_into(*parameters[0], testing::test_values(1, 24));
      testing::allocate_gradients(rank.exec, parameters);
      nn::MicroBatch batch = testing::make_batch(1, 0, 1, 8, 5);
      testing::place_batch(batch, rank, sequence_parallel);
      PostedSink sink(rank.context);
      nn::WeightGradQueue queue(rank.exec, &sink);
      nn::Pass pass{rank, rank.exec, batch, nn::Mode::train, true, queue};
      nn::ColumnParallelLinear::Stash stash;
      layer.forward(pass, rank.exec.zeros({batch.shard_end - batch.shard_begin, 4}, DType::float32), stash);
      layer.backward(pass, rank.exec.zeros({8, 3}, DType::float32), std::move(stash));
      // One whole [8, 4] matrix of floats: 128 bytes.
      if (sequence_parallel)
        EXPECT_EQ(sink.posted["reduce_scatter"], 64);
      else
        EXPECT_EQ(sink.posted["all_reduce"], 128);
      EXPECT_EQ(rank.context.traffic().bytes["tp"], sink.posted) << "something was posted after the weight gradient";
    });
}

TEST(TokenShard, MustDivide) {
  nn::MicroBatch batch = testing::make_batch(1, 0, 1, 7, 5);
  EXPECT_THROW(nn::set_token_shard(batch, 0, 2), Error);
  nn::set_token_shard(batch, 3, 7);
  EXPECT_EQ(batch.shard_begin, 3);
  EXPECT_EQ(batch.shard_tokens.position, (std::vector<std::int64_t>{3}));
}

}  // namespace
}  // namespace megatron
