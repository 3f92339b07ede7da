#include "nn/weight_grad.h"

#include "support/grad_check.h"

namespace megatron {
namespace {

struct Sink : nn::GradSink {
  void prepare(nn::Parameter& parameter) override { prepared.push_back(parameter.name); }
  void grad_ready(nn::Parameter& parameter) override { ready.push_back(parameter.name); }
  std::vector<std::string> prepared;  // before each task
  std::vector<std::string> ready;
};

struct Fixture {
  kernels::Executor exec{tensor::Allocator::create(Device::cpu), 1};
  Sink sink;
  nn::WeightGradQueue queue{exec, &sink};
  nn::Parameter weight, bias, table;

  Fixture() {
    weight.name = "weight";
    weight.main_grad = exec.zeros({2, 3}, DType::float64);
    bias.name = "bias";
    bias.main_grad = exec.zeros({2}, DType::float64);
    table.name = "table";
    table.main_grad = exec.zeros({4, 1}, DType::float64);
  }
  Tensor counting(const Shape& shape) {
    Tensor tensor = exec.empty(shape, DType::float64);
    for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.data<double>()[i] = static_cast<double>(i);
    return tensor;
  }
};

const std::vector<double> kWeightGrad = {6, 8, 10, 9, 13, 17};  // [[0,1],[2,3]]ᵀ·[[0,1,2],[3,4,5]]

TEST(WeightGradQueue, RunsAtOnceUnlessDeferred) {
  Fixture f;
  f.queue.push(nn::LinearTask{&f.weight, &f.bias, f.counting({2, 3}), f.counting({2, 2})});
  EXPECT_TRUE(f.queue.empty());
  EXPECT_EQ(testing::to_doubles(f.weight.main_grad), kWeightGrad);
  EXPECT_EQ(testing::to_doubles(f.bias.main_grad), (std::vector<double>{2, 4}));
  EXPECT_EQ(f.sink.prepared, (std::vector<std::string>{"bias", "weight"}));
  EXPECT_EQ(f.sink.ready, (std::vector<std::string>{"bias", "weight"}));
}

TEST(WeightGradQueue, AddsVectorsThatLayersSummed) {
  Fixture f;
  f.bias.value = f.exec.zeros({2}, DType::float64);
  f.queue.push(nn::VectorTask{&f.bias, f.counting({2})});
  f.queue.set_deferred(true);
  f.queue.push(nn::VectorTask{&f.bias, f.counting({2})});
  EXPECT_EQ(testing::to_doubles(f.bias.main_grad), (std::vector<double>{0, 1}));
  f.queue.drain();
  EXPECT_EQ(testing::to_doubles(f.bias.main_grad), (std::vector<double>{0, 2}));
  EXPECT_EQ(f.sink.ready, (std::vector<std::string>{"bias", "bias"}));
  EXPECT_EQ(testing::to_doubles(nn::new_gradient(f.exec, f.bias)), (std::vector<double>{0, 0}));
}

TEST(WeightGradQueue, KeepsDeferredTasksForDrain) {
  Fixture f;
  const std::vector<std::int64_t> ids = {6, 4, 6, 2};
  f.queue.set_deferred(true);
  f.queue.push(nn::LinearTask{&f.weight, nullptr, f.counting({2, 3}), f.counting({2, 2})});
  f.queue.push(nn::EmbeddingTask{&f.table, ids.data(), 3, f.counting({4, 1})});
  EXPECT_FALSE(f.queue.empty());
  EXPECT_TRUE(f.sink.prepared.empty());
  EXPECT_TRUE(f.sink.ready.empty());
  EXPECT_EQ(testing::to_doubles(f.weight.main_grad), std::vector<double>(6, 0.0));
  f.queue.drain();
  EXPECT_TRUE(f.queue.empty());
  EXPECT_EQ(testing::to_doubles(f.weight.main_grad), kWeightGrad);
  EXPECT_EQ(testing::to_doubles(f.table.main_grad), (std::vector<double>{0, 1, 0, 2}));  // id 2 lies outside the shard
  EXPECT_EQ(f.sink.ready, (std::vector<std::string>{"weight", "table"}));
}

TEST(WeightGradQueue, AddsToWhatIsThere) {
  Fixture f;
  for (int i = 0; i < 2; ++i) f.queue.push(nn::LinearTask{&f.weight, nullptr, f.counting({2, 3}), f.counting({2, 2})});
  EXPECT_EQ(testing::to_doubles(f.weight.main_grad), (std::vector<double>{12, 16, 20, 18, 26, 34}));
}

TEST(WeightGradQueue, ReplacesWhatIsStaleOnce) {
  Fixture f;
  const std::vector<std::int64_t> ids = {6, 4, 6, 2};
  f.weight.main_grad_is_stale = f.table.main_grad_is_stale = true;
  for (std::int64_t i = 0; i < 6; ++i) f.weight.main_grad.data<double>()[i] = 1e6;
  f.table.main_grad.data<double>()[0] = 1e6;
  for (int i = 0; i < 2; ++i) {
    f.queue.push(nn::LinearTask{&f.weight, nullptr, f.counting({2, 3}), f.counting({2, 2})});
    f.queue.push(nn::EmbeddingTask{&f.table, ids.data(), 3, f.counting({4, 1})});
  }
  EXPECT_EQ(testing::to_doubles(f.weight.main_grad), (std::vector<double>{12, 16, 20, 18, 26, 34}));
  EXPECT_EQ(testing::to_doubles(f.table.main_grad), (std::vector<double>{0, 2, 0, 4}));
}

TEST(WeightGradQueue, LeavesFrozenParametersAlone) {
  Fixture f;
  f.weight.trainable = false;
  f.weight.main_grad.reset();
  f.queue.push(nn::LinearTask{&f.weight, &f.bias, f.counting({2, 3}), f.counting({2, 2})});
  EXPECT_EQ(f.sink.ready, (std::vector<std::string>{"bias"}));
}

}  // namespace
}  // namespace megatron
