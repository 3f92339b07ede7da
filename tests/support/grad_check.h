// Gradient checks: analytic gradients against central differences in fp64, along random directions and single elements
// of each tensor. The function under test may run on any number of ranks; it sees whole logical tensors.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "base/rng.h"
#include "nn/layer.h"
#include "support/run_ranks.h"
#include "support/stage_fixture.h"

namespace megatron::testing {

struct Evaluation {
  double value = 0;
  WholeTensors gradients;  // only when asked for
};
using Evaluate = std::function<Evaluation(const WholeTensors& point, bool with_gradients)>;

/// Uniform in [−1, 1), a function of (stream, index).
inline double test_value(std::uint64_t stream, std::int64_t index) {
  const auto i = static_cast<std::uint64_t>(index);
  const auto words = philox4x32(make_philox_key(stream, RandomPurpose::test, 1),
                                {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), 0, 0});
  return 2.0 * static_cast<double>(words[0]) / 4294967296.0 - 1.0;
}
inline std::vector<double> test_values(std::uint64_t stream, std::int64_t count, double scale = 1.0) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = scale * test_value(stream, i);
  return values;
}

inline double norm_of(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

/// Step 1e-5: truncation about 1e-10, rounding about 1e-11 relative to the value; `tolerance` is relative to the norm
/// of the tensor's gradient plus 1e-3 of the largest one (some true gradients are zero: key biases).
inline void grad_check(const Evaluate& evaluate, const WholeTensors& point, double tolerance = 2e-7) {
  const WholeTensors gradients = evaluate(point, true).gradients;
  ASSERT_FALSE(gradients.empty());
  double largest = 0;
  for (const auto& [name, gradient] : gradients) largest = std::max(largest, norm_of(gradient));
  ASSERT_GT(largest, 0.0);
  constexpr double kStep = 1e-5;
  std::uint64_t stream = 100;
  for (const auto& entry : gradients) {
    const std::string& name = entry.first;  // a plain reference: lambdas below capture it
    const std::vector<double>& gradient = entry.second;
    ASSERT_TRUE(point.count(name)) << name;
    ASSERT_EQ(point.at(name).size(), gradient.size()) << name;
    const auto largest_element =
        static_cast<std::size_t>(std::max_element(gradient.begin(), gradient.end(),
                                                  [](double a, double b) { return std::abs(a) < std::abs(b); }) -
                                 gradient.begin());
    for (int probe = 0; probe < 3; ++probe) {
      std::vector<double> direction = test_values(++stream, static_cast<std::int64_t>(gradient.size()));
      if (probe == 2) {
        direction.assign(gradient.size(), 0.0);
        direction[largest_element] = 1.0;
      }
      const auto moved = [&](double step) {
        WholeTensors there = point;
        std::vector<double>& values = there.at(name);
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += step * direction[i];
        return evaluate(there, false).value;
      };
      const double numeric = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      double analytic = 0;
      for (std::size_t i = 0; i < gradient.size(); ++i) analytic += gradient[i] * direction[i];
      EXPECT_NEAR(analytic, numeric, tolerance * (norm_of(gradient) + 1e-3 * largest)) << name << ", probe " << probe;
    }
  }
}

/// How a layer's input or output lies over the tensor-parallel ranks.
enum class Cut {
  tokens,   // whole on every rank, or token shards under sequence parallelism
  columns,  // all tokens, this rank's columns
};

/// A layer with its calls bound to a stash of its own.
struct BoundLayer {
  std::shared_ptr<void> owner;
  std::vector<nn::Parameter*> parameters;
  std::function<Tensor(nn::Pass&, const Tensor&)> forward;
  std::function<Tensor(nn::Pass&, Tensor)> backward;
};

/// Binds a layer that has forward(pass, x, stash), backward(pass, dy, stash&&), collect(parameters).
template <typename Layer, typename... Arguments>
BoundLayer bind_layer(Arguments&&... arguments) {
  struct State {
    explicit State(Arguments&&... inner) : layer(std::forward<Arguments>(inner)...) {}
    Layer layer;
    typename Layer::Stash stash;
  };
  auto state = std::make_shared<State>(std::forward<Arguments>(arguments)...);
  BoundLayer bound;
  state->layer.collect(bound.parameters);
  bound.forward = [state](nn::Pass& pass, const Tensor& x) { return state->layer.forward(pass, x, state->stash); };
  bound.backward = [state](nn::Pass& pass, Tensor dy) {
    return state->layer.backward(pass, std::move(dy), std::move(state->stash));
  };
  bound.owner = state;
  return bound;
}

struct LayerCase {
  std::function<BoundLayer(const nn::LayerSetup&)> make;
  std::int64_t in_width = 0, out_width = 0;  // logical
  Cut in = Cut::tokens, out = Cut::tokens;
  std::int64_t samples = 2, length = 6;
};

namespace detail {

/// This rank's rows and columns of a logical [T, width] matrix.
inline spec::Sharding matrix_part(Cut cut, std::int64_t tokens, std::int64_t width, const mesh::Group& tp,
                                  bool sharded) {
  if (cut == Cut::columns) return spec::column_shard(tokens, width, tp.rank(), tp.size());
  return sharded ? spec::row_shard(2, tokens, tokens, width, tp.rank(), tp.size())
                 : spec::replicated(2, tokens, width, tp.rank());
}

inline nn::Parameter matrix(kernels::Executor& exec, std::string name, const spec::Sharding& sharding) {
  nn::Parameter p;
  p.name = std::move(name);
  p.sharding = sharding;
  p.value = exec.empty({sharding.local_rows, sharding.local_cols}, DType::float64);
  return p;
}

/// One rank's part of value = Σ c·y; adds to `value` and, with gradients, to `gatherer`.
inline void run_layer(mesh::Rank& rank, const LayerCase& c, bool sequence_parallel, const WholeTensors& point,
                      bool with_gradients, std::mutex& mutex, double& value, Gatherer& gatherer) {
  const mesh::Group& tp = rank.mesh.tp;
  const bool sharded = sequence_parallel && !tp.trivial();
  BoundLayer layer = c.make({rank.exec.allocator(), tp, sharded, DType::float64});
  for (nn::Parameter* p : layer.parameters) scatter_into(*p, point.at(p->name));
  allocate_gradients(rank.exec, layer.parameters);
  nn::MicroBatch batch = make_batch(3, 5, c.samples, c.length, 11);
  place_batch(batch, rank, sharded);
  nn::WeightGradQueue queue(rank.exec, nullptr);
  nn::Pass pass{rank, rank.exec, batch, nn::Mode::train, with_gradients, queue};
  nn::Parameter x = matrix(rank.exec, "x", matrix_part(c.in, batch.num_tokens, c.in_width, tp, sharded));
  scatter_into(x, point.at("x"));
  const Tensor y = layer.forward(pass, x.value);
  nn::Parameter dy = matrix(rank.exec, "dy", matrix_part(c.out, batch.num_tokens, c.out_width, tp, sharded));
  scatter_into(dy, test_values(77, batch.num_tokens * c.out_width));
  MEGATRON_CHECK_EQ(y.shape(), dy.value.shape(), "output of the layer");
  if (!dy.sharding.pieces.empty() && dy.sharding.pieces[0].owned) {
    const std::scoped_lock lock(mutex);
    for (std::int64_t i = 0; i < y.numel(); ++i) value += y.data<double>()[i] * dy.value.data<double>()[i];
  }
  if (!with_gradients) return;
  x.main_grad = layer.backward(pass, std::move(dy.value));
  gatherer.add_gradient(x);
  for (const nn::Parameter* p : layer.parameters) gatherer.add_gradient(*p);
}

}  // namespace detail

/// Checks gradients of the input and of every parameter at the given tensor-parallel layout. Parameters are drawn
/// around 1 where they start as ones, else around 0.
inline void check_layer(const LayerCase& c, int tp, bool sequence_parallel) {
  SCOPED_TRACE(str_cat("tp ", tp, sequence_parallel ? " with sequence parallelism" : ""));
  WholeTensors point;
  point["x"] = test_values(1, c.samples * c.length * c.in_width);
  run_mesh(make_parallel(1), [&](mesh::Rank& rank) {
    std::uint64_t stream = 10;
    for (const nn::Parameter* p : c.make({rank.exec.allocator(), {}, false, DType::float64}).parameters) {
      std::vector<double> values = test_values(++stream, p->sharding.numel(), 0.5);
      if (p->init.kind == nn::Initializer::Kind::ones)
        for (double& value : values) value += 1.0;
      point[p->name] = std::move(values);
    }
  });
  grad_check(
      [&](const WholeTensors& there, bool with_gradients) {
        Evaluation result;
        Gatherer gatherer;
        std::mutex mutex;
        run_mesh(make_parallel(tp, 1, 1, sequence_parallel), [&](mesh::Rank& rank) {
          detail::run_layer(rank, c, sequence_parallel, there, with_gradients, mutex, result.value, gatherer);
        });
        result.gradients = std::move(gatherer.tensors);
        return result;
      },
      point);
}

/// At TP 1, 2, and 2 with sequence parallelism.
inline void check_layer_everywhere(const LayerCase& c) {
  check_layer(c, 1, false);
  check_layer(c, 2, false);
  check_layer(c, 2, true);
}

}  // namespace megatron::testing
