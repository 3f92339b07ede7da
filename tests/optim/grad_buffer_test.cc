#include "optim/grad_buffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "base/float16.h"
#include "kernels/elementwise.h"
#include "made_parameter.h"
#include "support/run_ranks.h"

namespace megatron::optim {
namespace {

using testing::make_parallel;
using testing::run_mesh;

Made matrices(kernels::Executor& exec, int count, std::int64_t numel) {
  Made made;
  for (int i = 0; i < count; ++i) made.add(made_parameter(exec, str_cat("w", i), 1, numel));
  return made;
}

std::string ranges(const GradBuffer& buffer) {
  std::string text;
  for (const FlatBucket& bucket : buffer.layout().buckets())
    text += str_cat(text.empty() ? "" : " ", bucket.begin, "-", bucket.end);
  return text;
}

/// Ten matrices of 95·95 elements, as the reference lays them out.
TEST(GradBuffer, BucketsOfMegatron) {
  run_mesh(make_parallel(1), [](mesh::Rank& rank) {
    const Made made = matrices(rank.exec, 10, 9025);
    const GradBuffer each(rank, made.all, {.bucket_size = 9000});
    EXPECT_EQ(each.layout().buckets().size(), 10U);
    EXPECT_EQ(each.layout().num_elements(), 90880);
    for (std::int64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(each.layout().buckets()[static_cast<std::size_t>(i)].begin, 9088 * i);
      EXPECT_EQ(each.layout().buckets()[static_cast<std::size_t>(i)].end, 9088 * (i + 1));
      EXPECT_EQ(made.all[static_cast<std::size_t>(9 - i)]->main_grad.offset(), 9088 * i);
    }
    EXPECT_EQ(ranges(GradBuffer(rank, made.all, {.bucket_size = 18050})),
              "0-18176 18176-36352 36352-54528 54528-72704 72704-90880");
    EXPECT_EQ(ranges(GradBuffer(rank, made.all)), "0-90880");
    EXPECT_EQ(ranges(GradBuffer(rank, {})), "");
  });
}

TEST(GradBuffer, TiedUsesHaveBucketsOfTheirOwn) {
  run_mesh(make_parallel(1), [](mesh::Rank& rank) {
    Made made;
    made.add(made_parameter(rank.exec, "table", 2, 50)).shared_embedding = true;
    made.add(made_parameter(rank.exec, "a", 1, 64));
    made.add(made_parameter(rank.exec, "b", 1, 10));
    made.add(made_parameter(rank.exec, "table", 2, 50)).tied_use = true;
    EXPECT_EQ(ranges(GradBuffer(rank, made.all)), "0-128 128-256 256-384");
  });
}

TEST(GradBuffer, MicroBatchesAddUpAndStepsStartAnew) {
  run_mesh(make_parallel(1), [](mesh::Rank& rank) {
    Made made = matrices(rank.exec, 2, 3);
    made.add(made_parameter(rank.exec, "bias", 3, 0));
    GradBuffer buffer(rank, made.all);
    for (int step = 0; step < 2; ++step) {
      buffer.start_step(2);
      for (int i = 0; i < 2; ++i)
        for (nn::Parameter* p : made.all) {
          // As nn::WeightGradQueue does it: the first contribution replaces what an earlier step left.
          if (std::exchange(p->main_grad_is_stale, false)) kernels::fill_zero(rank.exec, p->main_grad);
          p->main_grad.data<float>()[1] += 1.5F;
          buffer.grad_ready(*p);
        }
      buffer.finish_step();
      for (nn::Parameter* p : made.all) EXPECT_EQ(values_of(p->main_grad), (std::vector<float>{0.0F, 3.0F, 0.0F}));
    }
    buffer.start_step(2);
    EXPECT_TRUE(made.all.front()->main_grad_is_stale);
    EXPECT_EQ(values_of(made.all.back()->main_grad), std::vector<float>(3, 0.0F));
  });
}

TEST(GradBuffer, MissingAndSurplusReportsAreNamed) {
  run_mesh(make_parallel(1), [](mesh::Rank& rank) {
    const Made made = matrices(rank.exec, 2, 3);
    GradBuffer buffer(rank, made.all);
    const auto message = [](const std::function<void()>& fn) -> std::string {
      try {
        fn();
      } catch (const Error& error) {
        return error.what();
      }
      return "";
    };
    buffer.start_step(1);
    buffer.grad_ready(*made.all[0]);
    EXPECT_NE(message([&] { buffer.finish_step(); }).find("w1"), std::string::npos);
    EXPECT_NE(message([&] { buffer.grad_ready(*made.all[0]); }).find("w0"), std::string::npos);
    nn::Parameter stranger;
    stranger.name = "stranger";
    EXPECT_NE(message([&] { buffer.grad_ready(stranger); }).find("stranger"), std::string::npos);
  });
}

/// The canonical tree, written down for up to four ranks.
float tree(const std::vector<float>& v) {
  switch (v.size()) {
    case 1:
      return v[0];
    case 2:
      return v[0] + v[1];
    case 3:
      return (v[0] + v[1]) + v[2];
    default:
      return (v[0] + v[1]) + (v[2] + v[3]);
  }
}

/// What rank r's micro-batch m adds to element e of parameter p.
float contribution(int r, std::int64_t m, std::size_t p, std::int64_t e) {
  return made_value(r * 1000 + m * 10000 + static_cast<std::int64_t>(p) * 100 + e);
}

/// The sum over ranks of their values, rounded on the way where they travel in bfloat16.
float sum_over_ranks(std::vector<float> values, bool bf16) {
  if (!bf16) return tree(values);
  for (float& value : values) value = BFloat16(value);
  return BFloat16(tree(values));
}

/// Micro-batches first, then ranks; or ranks first, where every micro-batch is reduced.
float expected_sum(int dp, std::int64_t micro_batches, const GradBufferOptions& options, std::size_t p,
                   std::int64_t e) {
  const auto values_of_ranks = [&](const std::function<float(int)>& value) {
    std::vector<float> values;
    for (int r = 0; r < dp; ++r) values.push_back(value(r));
    return values;
  };
  if (!options.every_micro_batch) {
    const auto local = [&](int r) {
      float sum = contribution(r, 0, p, e);
      for (std::int64_t m = 1; m < micro_batches; ++m) sum += contribution(r, m, p, e);
      return sum;
    };
    return sum_over_ranks(values_of_ranks(local), options.reduce_in_bf16);
  }
  float sum = 0.0F;
  for (std::int64_t m = 0; m < micro_batches; ++m)
    sum += sum_over_ranks(values_of_ranks([&](int r) { return contribution(r, m, p, e); }), options.reduce_in_bf16);
  return sum;
}

/// Sums have the tree's bits on every rank or, with shards, where they are owned. Reduced once per step, they have them
/// although ranks finish their gradients in different orders.
void expect_tree_sums(int dp, std::int64_t micro_batches, const GradBufferOptions& options) {
  const auto on_rank = [&](mesh::Rank& rank) {
    const Made made = matrices(rank.exec, 5, 70);
    for (std::size_t p = 0; p < made.all.size(); ++p) made.all[p]->bucket_group = static_cast<std::int64_t>(p / 2);
    GradBuffer buffer(rank, made.all, options);
    EXPECT_EQ(buffer.layout().buckets().size(), 5U);
    const std::size_t own_order = options.every_micro_batch ? 0 : static_cast<std::size_t>(rank.mesh.rank);
    for (std::size_t step = 0; step < 3; ++step) {
      buffer.start_step(micro_batches);
      for (std::int64_t m = 0; m < micro_batches; ++m)
        for (std::size_t k = 0; k < made.all.size(); ++k) {
          const std::size_t p = (k + own_order + step) % made.all.size();
          buffer.prepare(*made.all[p]);
          // As nn::WeightGradQueue does it: the first contribution replaces what was there.
          Tensor& grad = made.all[p]->main_grad;
          if (std::exchange(made.all[p]->main_grad_is_stale, false)) kernels::fill_zero(rank.exec, grad);
          for (std::int64_t e = 0; e < 70; ++e) grad.data<float>()[e] += contribution(rank.mesh.rank, m, p, e);
          buffer.grad_ready(*made.all[p]);
        }
      buffer.finish_step();
      for (const OwnedPart& part : buffer.owned()) {
        const auto p = std::find(made.all.begin(), made.all.end(), part.range.parameter) - made.all.begin();
        for (std::int64_t e = part.range.begin; e < part.range.end; ++e)
          ASSERT_EQ(part.gradient.data<float>()[e - part.range.begin],
                    expected_sum(dp, micro_batches, options, static_cast<std::size_t>(p), e))
              << "element " << e;
      }
    }
  };
  run_mesh(make_parallel(1, 1, dp), on_rank, 1, /*perturb_seed=*/7);
}

TEST(GradBuffer, DataParallelSums) {
  for (const int dp : {2, 3, 4})
    for (const bool sharded : {false, true})
      for (const bool overlap : {false, true})
        for (const bool bf16 : {false, true})
          for (const bool every : {false, true})
            expect_tree_sums(dp, every ? 3 : 2,
                             {.bucket_size = 64,
                              .sharded = sharded,
                              .overlap = overlap,
                              .reduce_in_bf16 = bf16,
                              .every_micro_batch = every});
}

TEST(GradBuffer, TensorParallelSums) {
  constexpr int kTp = 4;
  run_mesh(make_parallel(kTp), [](mesh::Rank& rank) {
    const int r = rank.mesh.tp.rank();
    Made made;
    auto& shard = made.add(made_parameter(rank.exec, "shard", spec::row_shard(2, 8, 8, 3, r, kTp)));
    auto& norm = made.add(made_parameter(rank.exec, "norm", spec::replicated(1, 5, 1, r)));
    norm.grad_reduction = nn::GradReduction::tensor_parallel;
    auto& bias = made.add(made_parameter(rank.exec, "bias", spec::replicated(1, 7, 1, r)));
    bias.grad_reduction = nn::GradReduction::tensor_parallel;
    GradBuffer buffer(rank, made.all);
    buffer.start_step(1);
    for (nn::Parameter* p : made.all) {
      for (std::int64_t e = 0; e < p->main_grad.numel(); ++e) p->main_grad.data<float>()[e] = made_value(100 * r + e);
      buffer.grad_ready(*p);
    }
    buffer.finish_step();
    for (std::int64_t e = 0; e < shard.main_grad.numel(); ++e)
      EXPECT_EQ(shard.main_grad.data<float>()[e], made_value(100 * r + e));
    for (const nn::Parameter* p : {&norm, &bias})
      for (std::int64_t e = 0; e < p->main_grad.numel(); ++e)
        EXPECT_EQ(p->main_grad.data<float>()[e],
                  tree({made_value(e), made_value(100 + e), made_value(200 + e), made_value(300 + e)}));
    EXPECT_EQ(rank.context.traffic().bytes["tp"]["all_reduce"], 2 * 3 * 12 * 4 / 4);  // one operation of 12 elements
  });
}

/// Key and value rows that two or four ranks hold are summed over just these ranks; query rows are left alone.
TEST(GradBuffer, SharedKeyValueRows) {
  for (const int groups : {1, 2}) {
    constexpr int kTp = 4;
    constexpr std::int64_t kHeads = 8, kHeadSize = 3;
    for (const std::int64_t cols : {0, 5}) {
      run_mesh(make_parallel(kTp), [&](mesh::Rank& rank) {
        const int r = rank.mesh.tp.rank();
        const int dims = cols == 0 ? 1 : 2;
        const std::int64_t width = std::max<std::int64_t>(cols, 1);
        const spec::Sharding sharding = spec::qkv_shard(dims, kHeads, groups, kHeadSize, width, r, kTp);
        Made made;
        made.add(made_parameter(rank.exec, "qkv", sharding)).grad_reduction = nn::GradReduction::shared_kv_rows;
        GradBuffer buffer(rank, made.all);
        buffer.start_step(1);
        float* grad = made.all[0]->main_grad.data<float>();
        const std::int64_t n = made.all[0]->main_grad.numel();
        for (std::int64_t e = 0; e < n; ++e) grad[e] = made_value(1000 * r + e);
        buffer.grad_ready(*made.all[0]);
        buffer.finish_step();
        const std::int64_t query = kHeads / kTp * kHeadSize * width;
        for (std::int64_t e = 0; e < query; ++e) EXPECT_EQ(grad[e], made_value(1000 * r + e));
        const int sharers = kTp / groups, first = r / sharers * sharers;
        for (std::int64_t e = query; e < n; ++e) {
          std::vector<float> parts;
          for (int s = first; s < first + sharers; ++s) parts.push_back(made_value(1000 * s + e));
          EXPECT_EQ(grad[e], tree(parts)) << groups << " groups, element " << e;
        }
      });
    }
  }
}

/// Both uses of a tied table on one stage and on two: the same sum, in the same bits.
TEST(GradBuffer, TiedTable) {
  const auto lookup = [](std::int64_t e) { return made_value(e); };
  const auto head = [](std::int64_t e) { return made_value(5000 + e); };
  std::vector<float> together;
  run_mesh(make_parallel(1), [&](mesh::Rank& rank) {
    Made made;
    auto& table = made.add(made_parameter(rank.exec, "table", 6, 7));
    table.shared_embedding = true;
    auto& use = made.add(made_parameter(rank.exec, "table", 6, 7));
    use.tied_use = true;
    GradBuffer buffer(rank, made.all);
    buffer.start_step(1);
    for (std::int64_t e = 0; e < 42; ++e) {
      use.main_grad.data<float>()[e] = head(e);
      table.main_grad.data<float>()[e] = lookup(e);
    }
    buffer.grad_ready(use);
    buffer.grad_ready(table);
    buffer.finish_step();
    together = values_of(table.main_grad);
    for (std::int64_t e = 0; e < 42; ++e) EXPECT_EQ(together[static_cast<std::size_t>(e)], lookup(e) + head(e));
  });
  run_mesh(make_parallel(1, 3), [&](mesh::Rank& rank) {
    Made made;
    if (rank.mesh.holds_first_stage())
      made.add(made_parameter(rank.exec, "table", 6, 7)).shared_embedding = true;
    else
      made.add(made_parameter(rank.exec, "other", 2, 2));
    if (rank.mesh.holds_last_stage()) made.add(made_parameter(rank.exec, "table", 6, 7)).tied_use = true;
    GradBuffer buffer(rank, made.all);
    buffer.start_step(1);
    for (nn::Parameter* p : made.all) {
      for (std::int64_t e = 0; e < p->main_grad.numel(); ++e)
        p->main_grad.data<float>()[e] = rank.mesh.holds_first_stage() ? lookup(e) : head(e);
      buffer.grad_ready(*p);
    }
    buffer.finish_step();
    for (nn::Parameter* p : made.all)
      if (p->name == "table") {
        EXPECT_EQ(values_of(p->main_grad), together);
      }
  });
}

TEST(GradBuffer, CountsBytesOnMeta) {
  testing::run_meta(make_parallel(2, 1, 4), 3, [](mesh::Rank& rank) {
    Made made;
    made.add(made_parameter(rank.exec, "norm", spec::replicated(1, 100, 1, 1))).grad_reduction =
        nn::GradReduction::tensor_parallel;
    made.add(made_parameter(rank.exec, "w", 10, 10));
    GradBuffer buffer(rank, made.all);
    buffer.start_step(1);
    for (nn::Parameter* p : made.all) buffer.grad_ready(*p);
    buffer.finish_step();
    EXPECT_EQ(rank.context.traffic().bytes["dp"]["all_reduce"], 2 * 3 * 256 * 4 / 4);
    EXPECT_EQ(rank.context.traffic().bytes["tp"]["all_reduce"], 2 * 1 * 100 * 4 / 2);
    EXPECT_EQ(rank.exec.allocator().tracker().live(MemoryKind::gradient), 256 * 4);
  });
}

}  // namespace
}  // namespace megatron::optim
