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
  ASSERT_EQ(program.size(), 4U);
  EXPECT_EQ(text_of(program[0]), "0F0 1F0 2F0 3F0 0B0 1B0 2B0 3B0");
  EXPECT_EQ(text_of(program[2]), "0F0 1F0 0B0 2F0 1B0 3F0 2B0 3B0");
  EXPECT_EQ(text_of(program[3]), "0F0 0B0 1F0 1B0 2F0 2B0 3F0 3B0");
}

TEST(Generators, FewerMicroBatchesThanStages) {
  const Program program = one_f_one_b(4, 2);
  EXPECT_EQ(text_of(program[0]), "0F0 1F0 0B0 1B0");
  EXPECT_EQ(text_of(program[1]), "0F0 1F0 0B0 1B0");
  EXPECT_EQ(text_of(program[2]), "0F0 1F0 0B0 1B0");
  EXPECT_EQ(text_of(program[3]), "0F0 0B0 1F0 1B0");
}

TEST(Generators, GPipeAndForwardOnly) {
  for (const auto& list : gpipe(3, 2)) EXPECT_EQ(text_of(list), "0F0 1F0 0B0 1B0");
  for (const auto& list : forward_only(3, 2)) EXPECT_EQ(text_of(list), "0F0 1F0");
}

TEST(Generators, EverySizeIsValid) {
  for (int stages = 1; stages <= 9; ++stages)
    for (std::int64_t m = 1; m <= 12; ++m) {
      SCOPED_TRACE(str_cat(stages, " stages, ", m, " micro-batches"));
      EXPECT_NO_THROW(validate(insert_communication(one_f_one_b(stages, m))));
      EXPECT_NO_THROW(validate(insert_communication(gpipe(stages, m))));
      EXPECT_NO_THROW(validate(insert_communication(forward_only(stages, m))));
    }
  EXPECT_THROW(one_f_one_b(2, 0), Error);
  EXPECT_THROW(gpipe(0, 1), Error);
}

TEST(Generators, RunsUseTheirSchedule) {
  spec::ParallelSpec parallel;
  parallel.pipeline_parallel = 2;
  EXPECT_EQ(text_of(training_program(parallel, 2)[0]), "0F0 0sf0 1F0 1sf0 0rb0 0B0 1rb0 1B0");
  EXPECT_EQ(text_of(training_program(parallel, 2)[1]), "0rf0 0F0 0B0 0sb0 1rf0 1F0 1B0 1sb0");
  EXPECT_EQ(text_of(evaluation_program(parallel, 1)[1]), "0rf0 0F0");
  parallel.schedule = spec::PipelineSchedule::gpipe;
  EXPECT_EQ(text_of(training_program(parallel, 2)[1]), "0rf0 0F0 1rf0 1F0 0B0 0sb0 1B0 1sb0");
}

/// Instructions of a line like "F0.0 sf F0.1 sf+rb B0.0": messages carry no number, they come in order.
std::vector<Instruction> parse_megatron_log(const std::string& log) {
  std::vector<Instruction> list;
  std::int64_t next[4] = {0, 0, 0, 0};
  std::istringstream in(log);
  for (std::string word; in >> word;) {
    if (word[0] == 'F' || word[0] == 'B') {
      const std::size_t dot = word.find('.');
      list.push_back({word[0] == 'F' ? Op::forward : Op::backward, std::stoll(word.substr(dot + 1)),
                      std::stoi(word.substr(1, dot - 1))});
      continue;
    }
    std::istringstream parts(word);
    for (std::string part; std::getline(parts, part, '+');) {
      const Instruction message = parse_instruction("0" + part + "0");
      list.push_back({message.op, next[static_cast<int>(message.op) - static_cast<int>(Op::send_forward)]++, 0});
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
    const Program program = insert_communication(forward ? forward_only(stages, m) : one_f_one_b(stages, m));
    Program megatron;
    for (const auto& rank : record.at("ranks"))
      megatron.push_back(parse_megatron_log(rank.at("ok").at("log").get<std::string>()));
    ASSERT_EQ(megatron.size(), program.size());
    for (std::size_t stage = 0; stage < program.size(); ++stage)
      EXPECT_EQ(text_of(program[stage]), text_of(megatron[stage])) << stages << " stages, " << m << " micro-batches";
    EXPECT_NO_THROW(validate(megatron));
    ++compared;
  }
  EXPECT_EQ(compared, 16);
}

}  // namespace
}  // namespace megatron::schedule
