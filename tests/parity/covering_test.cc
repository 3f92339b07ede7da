// A set of layouts in which every possible pair of choices occurs, each compared with one rank over 3 steps.
#include "covering.h"

#include <gtest/gtest.h>

#include <map>

#include "training_case.h"

namespace megatron::parity {
namespace {

using testing::Layout;
using testing::SmallResult;

// The factors, in the order of a row.
enum Factor { kTp, kPp, kDp, kMicroBatch, kGroups, kSp, kTied, kLlama, kQkNorm, kSgd, kNumFactors };
const std::vector<int> kTpSizes = {1, 2, 3, 4, 8}, kPpSizes = {1, 2, 4}, kDpSizes = {1, 2, 4};
const std::vector<std::int64_t> kMicroBatches = {1, 2, 4}, kGroupCounts = {1, 2, 3, 24};
constexpr int kMaxRanks = 8;

std::vector<int> factor_sizes() { return {5, 3, 3, 3, 4, 2, 2, 2, 2, 2}; }

struct Choice {
  ModelChoice model;
  Setup setup;
  bool sgd = false;
};

Choice choice_of(const Row& row) {
  const auto value = [&](Factor f) { return static_cast<std::size_t>(row[f]); };
  Choice choice;
  choice.model = {row[kLlama] == 1, row[kTied] == 1, kGroupCounts[value(kGroups)], row[kQkNorm] == 1};
  choice.setup.layout = {kTpSizes[value(kTp)], kPpSizes[value(kPp)], kDpSizes[value(kDp)], row[kSp] == 1,
                         kMicroBatches[value(kMicroBatch)]};
  choice.sgd = row[kSgd] == 1;
  return choice;
}

/// The rules of a run: ranks that exist, sequence parallelism only with tensor parallelism, groups and ranks of which
/// one divides the other, whole micro-batches.
bool feasible(const Row& row) {
  const Choice choice = choice_of(row);
  const Layout& layout = choice.setup.layout;
  const std::int64_t groups = choice.model.groups;
  return layout.world() <= kMaxRanks && (!layout.sp || layout.tp > 1) &&
         (groups % layout.tp == 0 || layout.tp % groups == 0) && kGlobalBatch % (layout.micro_batch * layout.dp) == 0;
}

std::vector<Row> layouts() {
  return covering_set(feasible_rows(factor_sizes(), feasible),
                      [](const Row& row) { return choice_of(row).setup.layout.world(); });
}

std::string choice_text(const Choice& choice) {
  return str_cat(model_text(choice.model), choice.sgd ? " sgd " : " adam ", setup_text(choice.setup));
}

/// Adam hides a gradient that is scaled wrongly, SGD shows it. Adam's first updates are as long as the rate wherever
/// the gradient is not exactly 0, also where it is little more than rounding: hence a small rate.
spec::RunSpec short_run(const ModelChoice& model, bool sgd) {
  spec::RunSpec run = base_run(model);
  run.batch.train_iters = 3;
  run.optimizer.lr = sgd ? 0.1 : 2e-4;
  run.optimizer.kind = sgd ? spec::OptimizerKind::sgd : spec::OptimizerKind::adam;
  return run;
}

TEST(CoveringSet, EveryPairThatCanOccurDoes) {
  const std::vector<Row> chosen = layouts();
  std::set<ValuePair> covered;
  for (const Row& row : chosen) {
    EXPECT_TRUE(feasible(row));
    covered.merge(pairs_of(row));
  }
  // Counted anew, without the algorithm: a pair can occur if any completion of it can.
  const std::vector<int> sizes = factor_sizes();
  std::set<ValuePair> possible;
  Row row(kNumFactors, 0);
  std::int64_t total = 1;
  for (const int size : sizes) total *= size;
  for (std::int64_t number = 0; number < total; ++number) {
    std::int64_t rest = number;
    for (std::size_t f = 0; f < sizes.size(); ++f) {
      row[f] = static_cast<int>(rest % sizes[f]);
      rest /= sizes[f];
    }
    if (feasible(row)) possible.merge(pairs_of(row));
  }
  EXPECT_EQ(covered, possible);
  // What cannot occur, by hand: of tp×pp (3,4) (4,4) (8,2) (8,4), the same of tp×dp, (4,4) of pp×dp, (4,4) of
  // dp×micro-batch; sequence parallelism at tp 1; of tp×groups (2,3) (3,2) (4,3) (8,3).
  std::int64_t pairs = 0;
  for (std::size_t f = 0; f < sizes.size(); ++f)
    for (std::size_t g = f + 1; g < sizes.size(); ++g) pairs += sizes[f] * sizes[g];
  EXPECT_EQ(static_cast<std::int64_t>(possible.size()), pairs - 4 - 4 - 1 - 1 - 1 - 4);
  EXPECT_LE(chosen.size(), 40U);
}

TEST(CoveringSet, OfFourTwoValuedFactorsHasFewRows) {
  const std::vector<Row> rows = feasible_rows({2, 2, 2, 2}, [](const Row&) { return true; });
  ASSERT_EQ(rows.size(), 16U);
  const std::vector<Row> chosen = covering_set(rows, [](const Row&) { return 0; });
  std::set<ValuePair> covered;
  for (const Row& row : chosen) covered.merge(pairs_of(row));
  EXPECT_EQ(covered.size(), 24U);
  EXPECT_GE(chosen.size(), 5U);  // no set of 4 rows exists
  EXPECT_LE(chosen.size(), 7U);
}

TEST(Covering, EveryLayoutGivesTheNumbersOfOneRank) {
  std::map<std::string, SmallResult> single;  // by model and optimizer
  for (const Row& row : layouts()) {
    const Choice choice = choice_of(row);
    SCOPED_TRACE(choice_text(choice));
    const spec::RunSpec run = short_run(choice.model, choice.sgd);
    const std::string key = model_text(choice.model) + (choice.sgd ? " sgd" : "");
    if (single.count(key) == 0) single[key] = train_setup(run, {Layout{1, 1, 1, false, 2}});
    const SmallResult result = train_setup(run, choice.setup);
    const std::vector<std::string> found = differences(result, single[key], run.model, Level::close);
    EXPECT_TRUE(found.empty()) << joined(found);
    EXPECT_EQ(result.steps.size(), 3U);
  }
}

}  // namespace
}  // namespace megatron::parity
