#include "schedule/lr_schedule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "spec/batch_schedule.h"
#include "support/reference_data.h"

namespace megatron::schedule {
namespace {

using nlohmann::json;

LrSchedule from_megatron(const json& args) {
  LrSchedule s;
  s.init_lr = args.at("init_lr");
  s.max_lr = args.at("max_lr");
  s.min_lr = args.at("min_lr");
  s.warmup_samples = args.at("lr_warmup_steps");
  s.decay_samples = args.at("lr_decay_steps");
  s.style = parse_decay_style(args.at("lr_decay_style").get<std::string>());
  s.start_weight_decay = args.at("start_wd");
  s.end_weight_decay = args.at("end_wd");
  s.weight_decay_samples = args.at("wd_incr_steps");
  s.weight_decay_style = parse_weight_decay_style(args.at("wd_incr_style").get<std::string>());
  if (const auto it = args.find("lr_wsd_decay_style"); it != args.end() && !it->is_null())
    s.wsd_style = parse_wsd_decay_style(it->get<std::string>());
  if (const auto it = args.find("wsd_decay_steps"); it != args.end() && !it->is_null()) s.wsd_decay_samples = *it;
  return s;
}

/// The reference's test values (warm-up 100, decay 1000, 0 → 1e-3 → 1e-5).
TEST(LrSchedule, KnownValues) {
  LrSchedule s;
  s.max_lr = 1e-3;
  s.min_lr = 1e-5;
  s.warmup_samples = 100;
  s.decay_samples = 1000;
  s.style = spec::DecayStyle::cosine;
  s.weight_decay_style = spec::WeightDecayStyle::cosine;
  s.end_weight_decay = 0.1;
  s.weight_decay_samples = 1000;
  EXPECT_EQ(s.lr(0), 0.0);
  EXPECT_EQ(s.lr(1), 1e-05);
  EXPECT_EQ(s.lr(100), 0.001);
  EXPECT_EQ(s.lr(101), 0.0009999969842906062);
  EXPECT_EQ(s.lr(300), 0.0008841919993438941);
  EXPECT_EQ(s.lr(900), 3.9852152710975386e-05);
  EXPECT_EQ(s.lr(1001), 1e-05);
  EXPECT_EQ(s.weight_decay(101), 0.00249594904496141);
  EXPECT_EQ(s.weight_decay(1001), 0.1);
  s.style = spec::DecayStyle::inverse_square_root;
  EXPECT_EQ(s.lr(550), 0.00042640143271122083);
  s.style = spec::DecayStyle::wsd;
  s.wsd_style = spec::WsdDecayStyle::cosine;
  s.wsd_decay_samples = 200;
  EXPECT_EQ(s.lr(800), 0.001);
  EXPECT_EQ(s.lr(850), 0.000855017856687341);
  s.weight_decay_style = spec::WeightDecayStyle::linear;
  EXPECT_EQ(s.weight_decay(900), 0.09000000000000001);
}

TEST(LrSchedule, FromARun) {
  spec::OptimizerSpec optimizer;
  optimizer.lr = 1e-3;
  optimizer.lr_warmup_iters = 2;
  optimizer.lr_decay_style = spec::DecayStyle::wsd;
  optimizer.lr_wsd_decay_iters = 3;
  spec::BatchSpec batch;
  batch.global_batch_size = 16;
  batch.train_iters = 10;
  const LrSchedule by_iterations = make_lr_schedule(optimizer, batch);
  EXPECT_EQ(by_iterations.warmup_samples, 32.0);
  EXPECT_EQ(by_iterations.decay_samples, 160);
  EXPECT_EQ(by_iterations.wsd_decay_samples, 48);
  EXPECT_EQ(by_iterations.weight_decay_samples, 160);
  EXPECT_EQ(by_iterations.start_weight_decay, 0.01);
  EXPECT_EQ(by_iterations.lr(7 * 16), 1e-3);
  EXPECT_EQ(by_iterations.lr(10 * 16), 0.0);

  optimizer = {};
  optimizer.lr = 1e-3;
  optimizer.lr_warmup_fraction = 0.01;
  optimizer.lr_decay_samples = 150;
  batch.train_iters.reset();
  batch.train_samples = 1000;
  const LrSchedule by_samples = make_lr_schedule(optimizer, batch);
  EXPECT_EQ(by_samples.warmup_samples, 1.5);
  EXPECT_EQ(by_samples.decay_samples, 150);
  EXPECT_EQ(by_samples.weight_decay_samples, 1000);
  batch.train_samples.reset();
  EXPECT_THROW(make_lr_schedule(optimizer, batch), ConfigError);
  batch.train_iters = 5;
  optimizer.lr.reset();
  EXPECT_THROW(make_lr_schedule(optimizer, batch), ConfigError);
}

/// Iterations become samples along the batches that the run has: the rate ends at its minimum, and the warm-up lasts as
/// many iterations as it was given.
TEST(LrSchedule, OfAGrowingBatch) {
  spec::OptimizerSpec optimizer;
  optimizer.lr = 1e-3;
  optimizer.min_lr = 1e-5;
  optimizer.lr_warmup_iters = 2;
  spec::BatchSpec batch;
  batch.samples_per_round = 4;
  batch.global_batch_size = 32;
  batch.rampup = spec::BatchRampup{8, 8, 96, 32};
  batch.train_iters = 20;
  const spec::BatchSchedule batches(batch);
  std::int64_t samples = 0;
  for (int i = 0; i < 20; ++i) samples += batches.at(samples).global_batch;
  ASSERT_LT(samples, 20 * 32);
  const LrSchedule schedule = make_lr_schedule(optimizer, batch);
  EXPECT_EQ(schedule.decay_samples, samples);
  EXPECT_EQ(schedule.weight_decay_samples, samples);
  EXPECT_EQ(schedule.lr(samples), 1e-5);
  EXPECT_EQ(schedule.warmup_samples, 16.0);
  EXPECT_EQ(schedule.lr(16), 1e-3);
  optimizer.lr_decay_style = spec::DecayStyle::wsd;
  optimizer.lr_wsd_decay_iters = 3;
  EXPECT_EQ(make_lr_schedule(optimizer, batch).wsd_decay_samples, 3 * 32);
}

/// A schedule that may not be built, as the reference refuses it too.
bool is_refused(const json& args) {
  try {
    if (args.at("override_opt_param_scheduler") == true && args.at("use_checkpoint_opt_param_scheduler") == true)
      resume({}, {}, true, true);
    check(from_megatron(args));
  } catch (const ConfigError&) {
    return true;
  }
  return false;
}

TEST(LrSchedule, MegatronValues) {
  const auto path = testing::reference_dir() / "golden/mcore/sched/lr_wd.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  std::int64_t compared = 0, refused = 0;
  for (const auto& record : json::parse(std::ifstream(path))) {
    const std::string name = record.at("name");
    EXPECT_EQ(is_refused(record.at("args")), record.contains("error")) << name;
    if (record.contains("error")) {
      ++refused;
      continue;
    }
    json groups = record.at("groups");
    if (groups.is_null()) groups = json::array({json::object()});
    for (const auto& row : record.at("ok").at("rows")) {
      for (std::size_t g = 0; g < groups.size(); ++g) {
        json args = record.at("args");
        for (const char* key : {"max_lr", "min_lr", "start_wd", "end_wd"})
          if (groups[g].contains(key)) args[key] = groups[g][key];
        const LrSchedule schedule = from_megatron(args);
        const std::int64_t n = row.at(0);
        EXPECT_EQ(schedule.lr(n), row.at(1 + g).at(0).get<double>()) << name << " at " << n;
        EXPECT_EQ(schedule.weight_decay(n) * groups[g].value("wd_mult", 1.0), row.at(1 + g).at(1).get<double>())
            << name << " at " << n;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 2000);
  EXPECT_EQ(refused, 11);
}

TEST(LrSchedule, MegatronResume) {
  const auto path = testing::reference_dir() / "golden/mcore/sched/lr_resume.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  int compared = 0;
  for (const auto& record : json::parse(std::ifstream(path))) {
    const LrSchedule own = from_megatron(record.at("load_args"));
    const LrSchedule saved = from_megatron(record.at("save_args"));
    const bool override_own = record.at("load_args").at("override_opt_param_scheduler");
    const bool use_checkpoint = record.at("load_args").at("use_checkpoint_opt_param_scheduler");
    ++compared;
    if (record.contains("error")) {
      EXPECT_THROW(resume(own, saved, override_own, use_checkpoint), ConfigError) << record.at("name");
      continue;
    }
    const LrSchedule resumed = resume(own, saved, override_own, use_checkpoint);
    for (const auto& row : record.at("ok").at("rows")) {
      EXPECT_EQ(resumed.lr(row.at(0)), row.at(1).get<double>()) << record.at("name");
      EXPECT_EQ(resumed.weight_decay(row.at(0)), row.at(2).get<double>()) << record.at("name");
    }
  }
  EXPECT_EQ(compared, 9);
}

TEST(LrSchedule, ResumeNamesWhatDiffers) {
  LrSchedule own, saved;
  own.max_lr = 0.002;
  saved.max_lr = 0.001;
  try {
    resume(own, saved, false, false);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("--lr 0.002: the checkpoint was trained with 0.001"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace megatron::schedule
