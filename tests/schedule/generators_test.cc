#include "schedule/generators.h"

#include <gtest/gtest.h>

#include <algorithm>
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

/// Instructions of a line like "F0.0 sf F1.0 sf+rb B0.0" (F chunk.micro-batch): messages carry no number, they come in
/// order; they are left out unless `messages`.
std::vector<Instruction> parse_megatron_log(const std::string& log, const spec::StagePlacement& placement, int rank,
                                            bool messages) {
  std::vector<Instruction> list;
  std::int64_t next[4] = {0, 0, 0, 0};
  std::istringstream in(log);
  for (std::string word; in >> word;) {
    if (word[0] == 'F' || word[0] == 'B') {
      const std::size_t dot = word.find('.');
      list.push_back({word[0] == 'F' ? Op::forward : Op::backward, std::stoll(word.substr(dot + 1)),
                      placement.stage_of(rank, std::stoi(word.substr(1, dot - 1)))});
      continue;
    }
    if (!messages) continue;
    std::istringstream parts(word);
    for (std::string part; std::getline(parts, part, '+');) {
      const Instruction message = parse_instruction("0" + part + "0");
      list.push_back({message.op, next[static_cast<int>(message.op) - static_cast<int>(Op::send_forward)]++, rank});
    }
  }
  return list;
}

nlohmann::json megatron_records(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(testing::reference_dir() / "golden/mcore/pipeline" / name));
}

TEST(Generators, MegatronOrders) {
  MEGATRON_REQUIRE_REFERENCE(testing::reference_dir() / "golden/mcore/pipeline/schedules.json");
  int compared = 0;
  for (const auto& record : megatron_records("schedules.json")) {
    if (!record.at("vpp").is_null() || !record.contains("ranks")) continue;
    const int ranks = record.at("pp");
    const std::int64_t m = record.at("num_microbatches");
    const bool forward = record.value("forward_only", false);
    const Program program = insert_communication(forward ? forward_only({ranks}, m) : one_f_one_b(ranks, m));
    Program megatron{program.placement, {}};
    for (int rank = 0; rank < ranks; ++rank)
      megatron.lists.push_back(parse_megatron_log(record["ranks"][static_cast<std::size_t>(rank)]["ok"]["log"],
                                                  program.placement, rank, true));
    EXPECT_EQ(program, megatron) << ranks << " ranks, " << m << " micro-batches";
    EXPECT_NO_THROW(validate(megatron));
    ++compared;
  }
  EXPECT_EQ(compared, 16);
}

TEST(Generators, MegatronInterleavedOrders) {
  MEGATRON_REQUIRE_REFERENCE(testing::reference_dir() / "golden/mcore/pipeline/schedules_extra.json");
  int compared = 0, refused = 0;
  for (const char* const file : {"schedules.json", "schedules_extra.json"})
    for (const auto& record : megatron_records(file)) {
      if (record.at("vpp").is_null() || record.value("forward_only", false)) continue;
      const int ranks = record.at("pp"), chunks = record.at("vpp");
      const std::int64_t m = record.at("num_microbatches"), group = record.value("group", std::int64_t{ranks});
      SCOPED_TRACE(str_cat(ranks, " ranks, ", chunks, " chunks, ", m, " micro-batches in groups of ", group));
      const std::string problem = interleaving_problem(ranks, m, group);
      if (record.at("ranks").at(0).contains("error")) {
        EXPECT_NE(problem, "");
        EXPECT_THROW(interleaved(ranks, chunks, m, group), Error);
        ++refused;
        continue;
      }
      ASSERT_EQ(problem, "");
      const Program program = interleaved(ranks, chunks, m, group);
      for (int rank = 0; rank < ranks; ++rank)
        EXPECT_EQ(text_of(program.lists[static_cast<std::size_t>(rank)]),
                  text_of(parse_megatron_log(record["ranks"][static_cast<std::size_t>(rank)]["ok"]["compute"],
                                             program.placement, rank, false)));
      EXPECT_NO_THROW(validate(insert_communication(program)));
      ++compared;
    }
  EXPECT_GE(compared, 19);
  EXPECT_EQ(refused, 4);
}

TEST(Generators, MegatronWarmups) {
  MEGATRON_REQUIRE_REFERENCE(testing::reference_dir() / "golden/mcore/pipeline/warmup.json");
  int compared = 0;
  for (const auto& record : megatron_records("warmup.json")) {
    if (record.at("ep_overlap").get<bool>() || record.at("vpp").is_null()) continue;
    const int ranks = record.at("pp"), chunks = record.at("vpp");
    const std::int64_t m = record.at("m"), group = record.at("group");
    if (!interleaving_problem(ranks, m, group).empty()) continue;
    const Program program = interleaved(ranks, chunks, m, group);
    for (std::size_t rank = 0; rank < program.lists.size(); ++rank) {
      const auto& list = program.lists[rank];
      const auto first_backward =
          std::find_if(list.begin(), list.end(), [](const Instruction& i) { return i.op == Op::backward; });
      const auto& row = record["per_rank[total,all_warmup,warmup,remaining]"][rank];
      // Behind the warm-up comes one forward pass more, unless all are warm-up.
      const std::int64_t warmup = row[2].get<std::int64_t>();
      EXPECT_EQ(first_backward - list.begin(), std::min(warmup + 1, row[0].get<std::int64_t>())) << record.dump();
    }
    ++compared;
  }
  EXPECT_GE(compared, 5);
}

}  // namespace
}  // namespace megatron::schedule
