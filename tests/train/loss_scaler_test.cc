#include "train/loss_scaler.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "support/reference_data.h"

namespace megatron::train {
namespace {

spec::LossScaleSpec dynamic(double initial, double minimum, std::int64_t window, std::int64_t hysteresis) {
  spec::LossScaleSpec spec;
  spec.initial = initial;
  spec.minimum = minimum;
  spec.window = window;
  spec.hysteresis = hysteresis;
  return spec;
}

/// Two overflows are forgiven once, then each halves; three good steps in a row double and forgive again.
TEST(LossScaler, FollowsOverflows) {
  LossScaler scaler(dynamic(65536, 1, 3, 2));
  const bool overflows[] = {true, true, true, false, false, true, false, false, false, true};
  const double scales[] = {65536, 32768, 16384, 16384, 16384, 8192, 8192, 8192, 16384, 16384};
  for (std::size_t i = 0; i < std::size(scales); ++i) {
    scaler.update(overflows[i]);
    EXPECT_EQ(scaler.scale(), scales[i]) << "step " << i;
  }
}

TEST(LossScaler, EqualsTheReference) {
  const auto path = testing::reference_dir() / "golden/mcore/sched/loss_scaler.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  const nlohmann::json cases = nlohmann::json::parse(std::ifstream(path));
  std::int64_t compared = 0;
  for (const auto& c : cases) {
    if (!c.contains("ok") || c["growth_factor"] != 2.0 || c["backoff_factor"] != 0.5) continue;
    LossScaler scaler(dynamic(c["initial_scale"], c["min_scale"], c["growth_interval"], c["hysteresis"]));
    const auto expect_row = [&](const nlohmann::json& row) {
      EXPECT_EQ(scaler.scale(), row[0].get<double>());
      EXPECT_EQ(scaler.state().growth_tracker, row[1].get<std::int64_t>());
      EXPECT_EQ(scaler.state().hysteresis_tracker, row[2].get<double>());
      ++compared;
    };
    const std::string pattern = c["pattern"];
    expect_row(c["ok"]["rows"][0]);
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      scaler.update(pattern[i] == 'i');
      expect_row(c["ok"]["rows"][i + 1]);
    }
  }
  EXPECT_GT(compared, 20);
}

TEST(LossScaler, EndsARunThatCannotRecover) {
  LossScaler at_minimum(dynamic(4, 1, 1000, 1));
  for (int i = 0; i < 2 + LossScaler::kMaxOverflows - 1; ++i) {
    at_minimum.update(true);
    EXPECT_FALSE(at_minimum.exhausted()) << i;
  }
  at_minimum.update(true);
  EXPECT_TRUE(at_minimum.exhausted());

  spec::LossScaleSpec spec;
  spec.constant = 128;
  LossScaler constant(spec);
  for (int i = 0; i < 49; ++i) constant.update(true);
  constant.update(false);
  for (int i = 0; i < 49; ++i) constant.update(true);
  EXPECT_FALSE(constant.exhausted());
  EXPECT_EQ(constant.scale(), 128.0);
  constant.update(true);
  EXPECT_TRUE(constant.exhausted());
}

TEST(LossScaler, ResumesWhereItStood) {
  LossScaler whole(dynamic(1024, 1, 3, 2)), first(dynamic(1024, 1, 3, 2));
  const bool overflows[] = {true, false, true, false, false, false, true, true};
  for (int i = 0; i < 4; ++i) {
    whole.update(overflows[i]);
    first.update(overflows[i]);
  }
  LossScaler second(dynamic(1, 1, 3, 2));
  second.restore(first.state());
  for (int i = 4; i < 8; ++i) {
    whole.update(overflows[i]);
    second.update(overflows[i]);
  }
  EXPECT_EQ(second.state(), whole.state());
}

TEST(SeedShift, IsTheLogarithmRoundedUp) {
  EXPECT_EQ(seed_shift(1), 0);
  EXPECT_EQ(seed_shift(2), 1);
  EXPECT_EQ(seed_shift(1000), 10);
  EXPECT_EQ(seed_shift(1024), 10);
  EXPECT_EQ(seed_shift(1025), 11);
}

}  // namespace
}  // namespace megatron::train
