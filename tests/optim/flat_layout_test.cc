#include "optim/flat_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "made_parameter.h"
#include "support/run_ranks.h"

namespace megatron::optim {
namespace {

using testing::make_parallel;
using testing::run_mesh;

/// Sizes that divide by nothing, a table with padding, a tied use, 1-D tensors.
Made odd_parameters(kernels::Executor& exec) {
  Made made;
  made.add(made_parameter(exec, "table", spec::row_shard(2, 61, 64, 40, 0, 1))).shared_embedding = true;
  made.add(made_parameter(exec, "a", 7, 33));
  made.add(made_parameter(exec, "norm", 130, 0));
  made.add(made_parameter(exec, "b", 5, 192));
  made.add(made_parameter(exec, "bias", 3, 0));
  made.add(made_parameter(exec, "table", spec::row_shard(2, 61, 64, 40, 0, 1))).tied_use = true;
  return made;
}

TEST(FlatLayout, ShardsTileEveryParameter) {
  run_mesh(make_parallel(1), [](mesh::Rank& rank) {
    const Made made = odd_parameters(rank.exec);
    for (const int shards : {1, 2, 3, 5, 8, 64}) {
      const FlatLayout layout(made.all, {.bucket_size = 300, .shards = shards});
      std::vector<std::int64_t> next(made.all.size(), 0);
      for (int shard = 0; shard < shards; ++shard)
        for (const ParameterRange& range : layout.owned_ranges(shard)) {
          const auto at =
              static_cast<std::size_t>(std::find(made.all.begin(), made.all.end(), range.parameter) - made.all.begin());
          EXPECT_EQ(range.begin, next[at]) << range.parameter->name << " in " << shards;
          EXPECT_GT(range.size(), 0);
          next[at] = range.end;
        }
      for (std::size_t i = 0; i < made.all.size(); ++i) EXPECT_EQ(next[i], made.all[i]->value.numel());
    }
  });
}

TEST(FlatLayout, CutsNoSegmentOfTheNorm) {
  run_mesh(make_parallel(1), [](mesh::Rank& rank) {
    const Made made = odd_parameters(rank.exec);
    for (int shards = 2; shards < 20; ++shards) {
      const FlatLayout layout(made.all, {.bucket_size = 300, .shards = shards});
      for (const FlatBucket& bucket : layout.buckets())
        EXPECT_EQ(std::accumulate(bucket.shard_sizes.begin(), bucket.shard_sizes.end(), bucket.begin), bucket.end);
      for (int shard = 0; shard < shards; ++shard)
        for (const ParameterRange& range : layout.owned_ranges(shard)) {
          const std::int64_t cols = range.parameter->sharding.local_cols;
          const std::int64_t in_row = cols == 1 ? range.begin : range.begin % cols;
          EXPECT_EQ(in_row % 64, 0) << range.parameter->name << " is cut at " << range.begin;
        }
    }
  });
}

TEST(FlatLayout, ShardsAreEqualWhereRowsAreWholeSegments) {
  run_mesh(make_parallel(1), [](mesh::Rank& rank) {
    Made made;
    made.add(made_parameter(rank.exec, "a", 10, 128));
    made.add(made_parameter(rank.exec, "b", 3, 64));
    const FlatLayout layout(made.all, {.bucket_size = 1 << 20, .shards = 4});
    ASSERT_EQ(layout.buckets().size(), 1U);
    EXPECT_EQ(layout.buckets()[0].shard_sizes, std::vector<std::int64_t>(4, 384));  // 1472 elements, padded to 1536
  });
}

TEST(FlatLayout, LeavesWholeWhatMustBe) {
  run_mesh(make_parallel(1), [](mesh::Rank& rank) {
    const Made made = odd_parameters(rank.exec);
    const FlatLayout layout(made.all, {.bucket_size = 1 << 20, .shards = 3, .indivisible = [](const nn::Parameter& p) {
                                         return p.name == "b";
                                       }});
    int holders = 0;
    for (int shard = 0; shard < 3; ++shard)
      for (const ParameterRange& range : layout.owned_ranges(shard)) {
        if (range.parameter->name != "b") continue;
        EXPECT_TRUE(range.whole());
        ++holders;
      }
    EXPECT_EQ(holders, 1);
  });
}

TEST(FlatLayout, SegmentsOfACutVectorCountFromItsLogicalBegin) {
  const spec::Sharding second = spec::row_shard(1, 200, 200, 1, 1, 2);  // logical rows 100 … 199
  EXPECT_EQ(segment_begin(second, 0), 0);
  EXPECT_EQ(segment_begin(second, 27), 0);
  EXPECT_EQ(segment_begin(second, 28), 28);  // logical 128
  EXPECT_EQ(segment_begin(second, 99), 92);  // logical 192
}

}  // namespace
}  // namespace megatron::optim
