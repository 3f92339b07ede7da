#include "spec/micro_batches.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/reference_data.h"

namespace megatron::spec {
namespace {

TEST(MicroBatches, AreThoseThatFitWhole) {
  EXPECT_EQ(constant_micro_batches(1536, 2, 64).num_micro_batches, 12);
  EXPECT_EQ(constant_micro_batches(1536, 2, 64).running_global_batch, 1536);
  EXPECT_EQ(constant_micro_batches(32, 8, 3).running_global_batch, 24);
  EXPECT_EQ(constant_micro_batches(4, 8, 1).num_micro_batches, 0);
}

TEST(MicroBatches, Megatron) {
  const auto path = testing::reference_dir() / "golden/mcore/sched/microbatches.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  int compared = 0;
  for (const auto& record : nlohmann::json::parse(std::ifstream(path))) {
    if (record.at("kind") != "constant") continue;
    const auto& args = record.at("args");
    const std::int64_t global = args.at("global_batch_size");
    const MicroBatchCount count =
        constant_micro_batches(global, args.at("micro_batch_size"), args.at("data_parallel_size"));
    const bool valid =
        args.at("decrease_batch_size_if_needed") ? count.num_micro_batches > 0 : count.running_global_batch == global;
    ++compared;
    EXPECT_EQ(valid, !record.contains("error")) << record;
    if (record.contains("error")) continue;
    for (const auto& row : record.at("ok").at("rows")) {
      EXPECT_EQ(count.running_global_batch, row.at(2).get<std::int64_t>()) << record;
      EXPECT_EQ(count.num_micro_batches, row.at(3).get<std::int64_t>()) << record;
    }
  }
  EXPECT_GE(compared, 20);
}

}  // namespace
}  // namespace megatron::spec
