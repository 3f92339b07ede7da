#include "schedule/generators.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/check.h"
#include "schedule/passes.h"
#include "schedule_text.h"
#include "support/reference_data.h"

namespace megatron::schedule {
namespace {

TEST(Generators, OneForwardOneBackwardOnFourStages) {
  const Program program = one_f_one_b(4, 4);
  ASSERT_EQ(program.lists.size(), 4U);
  EXPECT_EQ(text_of(program.lists[0]), "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3");
  EXPECT_EQ(text_of(program.lists[2]), "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2B3");
  EXPECT_EQ(text_of(program.lists[3]), "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3");
}

TEST(Generators, FewerMicroBatchesThanStages) {
  const Program program = one_f_one_b(4, 2);
  EXPECT_EQ(text_of(program.lists[0]), "0F0 0F1 0B0 0B1");
  EXPECT_EQ(text_of(program.lists[1]), "1F0 1F1 1B0 1B1");
  EXPECT_EQ(text_of(program.lists[2]), "2F0 2F1 2B0 2B1");
  EXPECT_EQ(text_of(program.lists[3]), "3F0 3B0 3F1 3B1");
}

TEST(Generators, GPipeAndForwardOnly) {
  EXPECT_EQ(gpipe({2}, 2), program_of({"0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"}));
  EXPECT_EQ(forward_only({2}, 2), program_of({"0F0 0F1", "1F0 1F1"}));
  EXPECT_EQ(gpipe({1, 2}, 2), program_of({1, 2}, {"0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1"}));
  const spec::StagePlacement v{2, 2, spec::PlacementKind::v};
  EXPECT_EQ(forward_only(v, 3), program_of(v, {"0F0 0F1 3F0 3F1 0F2 3F2", "1F0 1F1 2F0 2F1 1F2 2F2"}));
}

TEST(Generators, EverySizeIsValid) {
  for (int ranks = 1; ranks <= 9; ++ranks)
    for (std::int64_t m = 1; m <= 12; ++m) {
      SCOPED_TRACE(str_cat(ranks, " ranks, ", m, " micro-batches"));
      EXPECT_NO_THROW(validate(insert_communication(one_f_one_b(ranks, m))));
      for (const spec::StagePlacement& placement : {spec::StagePlacement{ranks}, spec::StagePlacement{ranks, 3},
                                                    spec::StagePlacement{ranks, 2, spec::PlacementKind::v}}) {
        EXPECT_NO_THROW(validate(insert_communication(gpipe(placement, m))));
        EXPECT_NO_THROW(validate(insert_communication(forward_only(placement, m))));
      }
    }
  EXPECT_THROW(one_f_one_b(2, 0), Error);
  EXPECT_THROW(gpipe({0}, 1), Error);
}

TEST(Generators, RunsUseTheirSchedule) {
  spec::ParallelSpec parallel;
  parallel.pipeline_parallel = 2;
  EXPECT_EQ(text_of(training_program(parallel, 2).lists[0]), "0F0 0sf0 0F1 0sf1 0rb0 0B0 0rb1 0B1");
  EXPECT_EQ(text_of(training_program(parallel, 2).lists[1]), "1rf0 1F0 1B0 1sb0 1rf1 1F1 1B1 1sb1");
  EXPECT_EQ(text_of(evaluation_program(parallel, 1).lists[1]), "1rf0 1F0");
  parallel.schedule = spec::PipelineSchedule::gpipe;
  EXPECT_EQ(text_of(training_program(parallel, 2).lists[1]), "1rf0 1F0 1rf1 1F1 1B0 1sb0 1B1 1sb1");
}

/// Instructions of a line like "F0.0 sf F0.1 sf+rb B0.0": messages carry no number, they come in order.
std::vector<Instruction> parse_megatron_log(const std::string& log, int rank) {
  std::vector<Instruction> list;
  std::int64_t next[4] = {0, 0, 0, 0};
  std::istringstream in(log);
  for (std::string word; in >> word;) {
    if (word[0] == 'F' || word[0] == 'B') {
      const std::size_t dot = word.find('.');
      list.push_back({word[0] == 'F' ? Op::forward : Op::backward, std::stoll(word.substr(dot + 1)), rank});
      continue;
    }
    std::istringstream parts(word);
    for (std::string part; std::getline(parts, part, '+');) {
      const Instruction message = parse_instruction("0" + part + "0");
      list.push_back({message.op, next[static_cast<int>(message.op) - static_cast<int>(Op::send_forward)]++, rank});
    }
  }
  return list;
}

TEST(Generators, MegatronOrders) {
  const auto path = testing::reference_dir() / "golden/mcore/pipeline/schedules.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  const nlohmann::json records = nlohmann::json::parse(std::ifstream(path));
  int compared = 0;
  for (const auto& record : records) {
    if (!record.at("vpp").is_null() || !record.contains("ranks")) continue;
    const int stages = record.at("pp");
    const std::int64_t m = record.at("num_microbatches");
    const bool forward = record.value("forward_only", false);
    const Program program = insert_communication(forward ? forward_only({stages}, m) : one_f_one_b(stages, m));
    Program megatron{program.placement, {}};
    for (const auto& rank : record.at("ranks"))
      megatron.lists.push_back(
          parse_megatron_log(rank.at("ok").at("log").get<std::string>(), static_cast<int>(megatron.lists.size())));
    ASSERT_EQ(megatron.lists.size(), program.lists.size());
    for (std::size_t stage = 0; stage < program.lists.size(); ++stage)
      EXPECT_EQ(text_of(program.lists[stage]), text_of(megatron.lists[stage]))
          << stages << " stages, " << m << " micro-batches";
    EXPECT_NO_THROW(validate(megatron));
    ++compared;
  }
  EXPECT_EQ(compared, 16);
}

}  // namespace
}  // namespace megatron::schedule
