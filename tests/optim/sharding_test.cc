// What data-parallel ranks share out at each ZeRO stage: what it costs in bytes, and that values are there when used.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>

#include "made_parameter.h"
#include "optim/grad_buffer.h"
#include "optim/parameter_buffer.h"
#include "optim/parameter_shards.h"
#include "support/run_ranks.h"

namespace megatron::optim {
namespace {

using testing::make_parallel;

/// Four units of parameters of odd sizes, one of two buckets.
struct Units {
  Units(kernels::Executor& exec, DType dtype) {
    const std::int64_t rows[] = {61, 33, 33, 61};
    for (std::int64_t unit = 0; unit < 4; ++unit) {
      const std::int64_t n = rows[unit];
      add(made_parameter(exec, str_cat("matrix", unit), spec::replicated(2, n, 37, 0), dtype), unit);
      if (unit == 1 || unit == 2)
        add(made_parameter(exec, str_cat("vector", unit), spec::replicated(1, n, 1, 0), dtype), unit);
    }
  }
  void add(std::unique_ptr<nn::Parameter> parameter, std::int64_t unit) {
    parameter->bucket_group = unit;
    parameter->main_grad.reset();
    units[static_cast<std::size_t>(unit)].push_back(&made.add(std::move(parameter)));
  }
  Made made;
  std::vector<nn::Parameter*> units[4];
};

/// Buffers of a stage as training makes them.
struct Sharing {
  Sharing(mesh::Rank& rank, int stage, DType dtype, bool overlap = true) : model(rank.exec, dtype) {
    GradBufferOptions options;
    options.bucket_size = 1000;
    options.sharded = stage > 0;
    options.overlap = overlap;
    options.every_micro_batch = stage > 1;
    grads = std::make_unique<GradBuffer>(rank, model.made.all, options);
    if (stage == 3) store = std::make_unique<ParameterShards>(rank, grads->layout(), overlap);
    if (stage == 1 || stage == 2) store = std::make_unique<ParameterBuffer>(rank, grads->layout(), overlap);
  }

  /// Forward and backward of one micro-batch; `use` sees each parameter while its unit is held.
  void pass(const std::function<void(nn::Parameter&)>& use = nullptr) {
    const auto visit = [&](int unit, int next) {
      const nn::ParameterUnit ahead = next < 0 || next > 3 ? nn::ParameterUnit() : nn::ParameterUnit(model.units[next]);
      const nn::ParameterUse held(store.get(), model.units[unit], ahead);
      for (nn::Parameter* p : model.units[unit])
        if (use) use(*p);
    };
    for (int unit = 0; unit < 4; ++unit) visit(unit, unit + 1);
    for (int unit = 3; unit >= 0; --unit) {
      visit(unit, unit - 1);
      for (auto p = model.units[unit].rbegin(); p != model.units[unit].rend(); ++p) {
        grads->prepare(**p);
        grads->grad_ready(**p);
      }
    }
  }

  Units model;
  std::unique_ptr<GradBuffer> grads;
  std::unique_ptr<ParameterStore> store;
};

std::int64_t total(const std::map<std::string, std::int64_t>& bytes) {
  std::int64_t sum = 0;
  for (const auto& [operation, count] : bytes) sum += count;
  return sum;
}

/// With d ranks, P padded elements, m micro-batches and b bytes per value a rank sends per step:
/// stage 0: 2(d−1)/d·P·4, 1: (d−1)/d·P·(4+b), 2: (d−1)/d·P·(4m+b), 3: (d−1)/d·P·m·(4+2b).
TEST(Sharding, BytesSentPerStep) {
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const int d : {2, 4, 8})
      for (const std::int64_t m : {1, 3})
        for (int stage = 0; stage <= 3; ++stage)
          testing::run_meta(make_parallel(1, 1, d), 1, [&](mesh::Rank& rank) {
            Sharing sharing(rank, stage, dtype);
            sharing.grads->start_step(m);
            for (std::int64_t i = 0; i < m; ++i) sharing.pass();
            sharing.grads->finish_step();
            if (sharing.store != nullptr) sharing.store->values_changed();
            if (sharing.store != nullptr) sharing.store->finish_gathers();
            const std::int64_t b = dtype_size(dtype), padded = sharing.grads->layout().num_elements();
            const std::int64_t per_element[] = {8, 4 + b, 4 * m + b, m * (4 + 2 * b)};
            EXPECT_EQ(total(rank.context.traffic().bytes["dp"]), (d - 1) * padded / d * per_element[stage])
                << "stage " << stage << ", " << d << " ranks, " << m << " micro-batches of " << dtype_name(dtype);
          });
}

/// Every use sees what owners wrote, whether anything overlaps or not; between uses a rank has its shard alone.
TEST(Sharding, ValuesAreThereWhileTheyAreUsed) {
  const auto value = [](const nn::Parameter& p, std::int64_t element, int step) {
    return made_value(element + 5000 * p.bucket_group + 100000 * step + (p.sharding.num_dims == 1 ? 3000 : 0));
  };
  for (const bool overlap : {false, true})
    for (const int stage : {1, 3})
      testing::run_mesh(
          make_parallel(1, 1, 3),
          [&](mesh::Rank& rank) {
            Sharing sharing(rank, stage, DType::float32, overlap);
            const std::int64_t padded = sharing.grads->layout().num_elements();
            tensor::MemoryTracker& tracker = rank.exec.allocator().tracker();
            EXPECT_LT(tracker.live(MemoryKind::parameter), stage == 3 ? 4 * padded / 2 : 4 * padded + 1);
            for (int step = 0; step < 3; ++step) {
              for (const OwnedPart& part : sharing.grads->owned()) {
                Tensor owned = sharing.store->owned_value(part.range);
                for (std::int64_t e = part.range.begin; e < part.range.end; ++e)
                  owned.data<float>()[e - part.range.begin] = value(*part.range.parameter, e, step);
              }
              sharing.store->values_changed();
              sharing.grads->start_step(2);
              for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
                sharing.pass([&](nn::Parameter& p) {
                  for (std::int64_t e = 0; e < p.value.numel(); ++e)
                    ASSERT_EQ(std::as_const(p.value).data<float>()[e], value(p, e, step)) << p.name;
                });
              sharing.grads->finish_step();
              for (const nn::Parameter* p : sharing.model.made.all) {
                EXPECT_EQ(p->value.is_meta(), stage == 3) << p->name;
                EXPECT_EQ(p->value.numel(), p->sharding.local_rows * p->sharding.local_cols);
              }
            }
            sharing.store->complete();
            for (const nn::Parameter* p : sharing.model.made.all)
              EXPECT_EQ(p->value.data<float>()[p->value.numel() - 1], value(*p, p->value.numel() - 1, 2));
          },
          1, /*perturb_seed=*/31);
}

/// A unit that is held twice is gathered once and stays until both uses have ended.
TEST(Sharding, NestedUsesShareAGather) {
  testing::run_mesh(make_parallel(1, 1, 2), [](mesh::Rank& rank) {
    Sharing sharing(rank, 3, DType::float32);
    const nn::ParameterUnit unit = sharing.model.units[1];
    const nn::Parameter& p = *unit.front();
    {
      const nn::ParameterUse outer(sharing.store.get(), unit);
      const std::int64_t sent = total(rank.context.traffic().bytes["dp"]);
      { const nn::ParameterUse inner(sharing.store.get(), unit, unit); }
      EXPECT_FALSE(p.value.is_meta());
      EXPECT_EQ(total(rank.context.traffic().bytes["dp"]), sent);
    }
    EXPECT_TRUE(p.value.is_meta());
    EXPECT_THROW(sharing.store->release(unit), Error);
  });
}

/// Gradients of full size live for two buckets at most.
TEST(Sharding, FullGradientsLiveForTwoBucketsAtMost) {
  testing::run_mesh(make_parallel(1, 1, 4), [](mesh::Rank& rank) {
    Sharing sharing(rank, 2, DType::float32);
    std::int64_t largest = 0, owned = 0;
    for (const FlatBucket& bucket : sharing.grads->layout().buckets()) {
      largest = std::max(largest, bucket.end - bucket.begin);
      owned += bucket.shard_sizes[static_cast<std::size_t>(rank.mesh.dp.rank())];
    }
    sharing.grads->start_step(3);
    for (int i = 0; i < 3; ++i) sharing.pass();
    sharing.grads->finish_step();
    EXPECT_LE(rank.exec.allocator().tracker().peak(MemoryKind::gradient), 4 * (owned + 2 * largest));
  });
}

}  // namespace
}  // namespace megatron::optim
