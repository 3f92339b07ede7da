#include "schedule/micro_batches.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "support/reference_data.h"

namespace megatron::schedule {
namespace {

TEST(MicroBatches, Constant) {
  EXPECT_EQ(constant_micro_batches(1536, 2, 64).num_micro_batches, 12);
  EXPECT_EQ(constant_micro_batches(32, 8, 3, true).running_global_batch, 24);
  try {
    constant_micro_batches(33, 8, 2);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "--global-batch-size 33: must be a multiple of --micro-batch-size 8 × data-parallel size 2 = 16; "
                 "nearest: 32 or 48");
  }
  EXPECT_THROW(constant_micro_batches(4, 8, 1, true), ConfigError);
  EXPECT_THROW(constant_micro_batches(0, 1, 1), ConfigError);
  EXPECT_THROW(constant_micro_batches(1, 0, 1), ConfigError);
}

TEST(MicroBatches, Megatron) {
  const auto path = testing::reference_dir() / "golden/mcore/sched/microbatches.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  int compared = 0;
  for (const auto& record : nlohmann::json::parse(std::ifstream(path))) {
    if (record.at("kind") != "constant") continue;
    const auto& args = record.at("args");
    const auto count = [&] {
      return constant_micro_batches(args.at("global_batch_size"), args.at("micro_batch_size"),
                                    args.at("data_parallel_size"), args.at("decrease_batch_size_if_needed"));
    };
    ++compared;
    if (record.contains("error")) {
      EXPECT_THROW(count(), ConfigError) << record;
      continue;
    }
    for (const auto& row : record.at("ok").at("rows")) {
      EXPECT_EQ(count().running_global_batch, row.at(2).get<std::int64_t>()) << record;
      EXPECT_EQ(count().num_micro_batches, row.at(3).get<std::int64_t>()) << record;
    }
  }
  EXPECT_GE(compared, 20);
}

}  // namespace
}  // namespace megatron::schedule
