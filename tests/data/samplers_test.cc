#include "data/samplers.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "data/batch.h"
#include "golden.h"

namespace megatron::data {
namespace {

using testing::Ints;
using testing::Json;
using Batches = std::vector<Ints>;

TEST(Randperm, AsTorch) {
  EXPECT_EQ(torch_randperm(5, 0), (Ints{4, 0, 1, 3, 2}));
  EXPECT_EQ(torch_randperm(5, 1), (Ints{0, 4, 2, 3, 1}));
  EXPECT_EQ(torch_randperm(1, 0), Ints{0});
  EXPECT_EQ(torch_randperm(0, 0), Ints{});
}

TEST(Randperm, AllReferenceRecords) {
  const auto path = testing::dataset_dir() / "randperm.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  for (const Json& record : testing::load_json(path))
    testing::expect_array(torch_randperm(record["n"].get<std::int64_t>(), record["seed"].get<std::uint64_t>()), record,
                          record.dump());
}

TEST(CyclicOrder, EveryEpochAfterAResumeShowsAllSamplesInANewOrder) {
  const CyclicOrder order(12, 2, 2);
  std::vector<Ints> epochs;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    Ints indices;
    for (std::int64_t i = 0; i < 12; ++i) indices.push_back(order.dataset_index(epoch * 12 + i));
    EXPECT_EQ(std::set<std::int64_t>(indices.begin(), indices.end()).size(), 12U);
    epochs.push_back(indices);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_THROW(CyclicOrder(3, 2, 2), Error);
}

TEST(SequentialOrder, EndsWithTheData) {
  const SequentialOrder order(3);
  EXPECT_EQ(order.dataset_index(2), 2);
  EXPECT_THROW(order.dataset_index(3), Error);
}

struct Sampler {
  std::int64_t total, consumed, micro_batch_size, rank, ranks;
};

/// A rank's micro-batches up to `end`, as training reads them; `keep_tail`: the incomplete last one too.
Batches batches_of(const SampleOrder& order, const Sampler& sampler, std::int64_t end, bool keep_tail = false) {
  order.check_start(sampler.consumed);
  Batches batches;
  for (std::int64_t m = 0;; ++m) {
    const std::int64_t start = sampler.consumed + m * sampler.micro_batch_size * sampler.ranks;
    const std::int64_t stop = start + sampler.micro_batch_size * sampler.ranks;
    if (keep_tail ? start >= end : stop > end) return batches;
    const SampleRange range =
        micro_batch_range(sampler.consumed, m, sampler.micro_batch_size, sampler.rank, sampler.ranks);
    Ints batch;
    for (std::int64_t i = range.first; i < std::min(range.first + range.count, end); ++i)
      batch.push_back(order.dataset_index(i));
    batches.push_back(batch);
  }
}

/// All micro-batches of one step, joined.
Batches hybrid_batches(const Json& args) {
  const auto get = [&args](const char* key) { return args[key].get<std::int64_t>(); };
  const std::int64_t mbs = get("micro_batch_size"), dp = get("data_parallel_size"), gbs = get("global_batch_size");
  Batches batches;
  for (std::int64_t start = get("consumed_samples"); start + gbs <= get("total_samples"); start += gbs) {
    Ints batch;
    for (std::int64_t m = 0; m < gbs / (mbs * dp); ++m) {
      const SampleRange range = micro_batch_range(start, m, mbs, get("data_parallel_rank"), dp);
      for (std::int64_t i = 0; i < range.count; ++i) batch.push_back(range.first + i);
    }
    batches.push_back(batch);
  }
  return batches;
}

Batches batches_of(const std::string& kind, const Json& args) {
  const auto get = [&args](const char* key, std::int64_t otherwise) { return args.value(key, otherwise); };
  const Sampler sampler{get("total_samples", 0), get("consumed_samples", 0), get("micro_batch_size", 1),
                        get("data_parallel_rank", 0), get("data_parallel_size", 1)};
  if (kind == "hybrid_cp") return hybrid_batches(args);
  if (kind == "cyclic") {
    const CyclicOrder order(sampler.total, sampler.micro_batch_size, sampler.ranks, args.value("data_sharding", true));
    const std::int64_t epoch = order.samples_per_epoch();
    return batches_of(order, sampler, (sampler.consumed / epoch + 1) * epoch);
  }
  const bool keep_tail = kind == "full_validation" || !args.value("drop_last", true);
  Batches batches = batches_of(SequentialOrder(sampler.total), sampler, sampler.total, keep_tail);
  if (kind == "full_validation" && batches.back().empty()) batches.pop_back();
  return batches;
}

TEST(Samplers, AllReferenceRecords) {
  const auto path = testing::dataset_dir() / "samplers.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  int compared = 0;
  for (const Json& record : testing::load_json(path)) {
    const auto kind = record["kind"].get<std::string>();
    const Json& args = record["args"];
    if (record.contains("error")) {
      EXPECT_THROW(batches_of(kind, args), Error) << record.dump();
      continue;
    }
    Batches batches = batches_of(kind, args), expected = record["ok"].get<Batches>();
    // Without sharding the reference deals an epoch's tail to some ranks only; here all ranks end together.
    if (!args.value("data_sharding", true) && expected.size() == batches.size() + 1) expected.pop_back();
    if (batches.size() > 40) batches.resize(40);  // records hold the first 40
    EXPECT_EQ(batches, expected) << record.dump();
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

TEST(Samplers, SlicesOfEveryGlobalMicroBatch) {
  const SequentialOrder order(21);
  EXPECT_EQ(batches_of(order, {21, 4, 2, 1, 2}, 21), (Batches{{6, 7}, {10, 11}, {14, 15}, {18, 19}}));
  EXPECT_THROW(batches_of(order, {21, 21, 1, 0, 1}, 21), Error);
}

// 10 samples, micro batch 2, 3 ranks: every rank gets the same number of batches.
TEST(Samplers, UnevenTailIsDroppedOnAllRanks) {
  for (std::int64_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(batches_of(SequentialOrder(10), {10, 0, 2, rank, 3}, 10).size(), 1U);
}

TEST(Samplers, RanksShareTheSamplesOfAnEpoch) {
  for (const bool sharding : {true, false}) {
    const CyclicOrder order(40, 2, 4, sharding);
    std::set<std::int64_t> seen;
    for (std::int64_t rank = 0; rank < 4; ++rank)
      for (const Ints& batch : batches_of(order, {40, 0, 2, rank, 4}, 40)) seen.insert(batch.begin(), batch.end());
    EXPECT_EQ(seen.size(), 40U);
    EXPECT_EQ(*seen.rbegin(), 39);
  }
}

}  // namespace
}  // namespace megatron::data
