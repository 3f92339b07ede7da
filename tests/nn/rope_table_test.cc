#include "nn/attention/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>

namespace megatron {
namespace {

spec::ModelSpec llama3() {
  spec::ModelSpec model;
  model.kv_channels = 128;
  model.rotary_base = 500000.0;
  model.rope_scaling.emplace();
  model.seq_length = 32;
  return model;
}

// PyTorch in double, by Llama 3's published rule: pairs that stay, that are mixed (29 to 34) and that are stretched.
TEST(RopeFrequencies, FollowLlama3sScaling) {
  constexpr std::pair<std::size_t, double> kWant[] = {
      {0, 1},
      {1, 0.81461723385654472},
      {20, 0.016560440080994446},
      {28, 0.0032114459947525913},
      {29, 0.0021665707635033591},
      {30, 0.0013718935677611381},
      {34, 0.00017850781276799638},
      {35, 9.5562123539646833e-05},
      {40, 3.4281021959525912e-05},
      {63, 3.0689259889145111e-07},
  };
  const std::vector<double> got = nn::rope_frequencies(llama3());
  ASSERT_EQ(got.size(), 64U);
  for (const auto& [pair, frequency] : kWant) EXPECT_NEAR(got[pair] / frequency, 1.0, 1e-14) << pair;
}

TEST(RopeFrequencies, CountTheRotatingPartOnly) {
  spec::ModelSpec model;
  model.kv_channels = 12;
  model.rotary_percent = 0.34;  // 4.08 features: 4 rotate
  EXPECT_EQ(nn::rope_frequencies(model), (std::vector<double>{1.0, 0.01}));
  model.rotary_percent = 0.1;
  EXPECT_THROW(nn::rope_frequencies(model), Error);
}

TEST(RopeTable, HoldsCosineAndSineOfPositionTimesFrequency) {
  spec::ModelSpec model;
  model.kv_channels = 4;
  model.seq_length = 8;
  model.max_position_embeddings = 10;
  model.rotary_seq_len_interpolation_factor = 4.0;
  auto allocator = tensor::Allocator::create(Device::cpu);
  const nn::RopeTable table = nn::make_rope_table(*allocator, model, DType::float32);
  ASSERT_EQ(table.cos.shape(), (Shape{10, 2}));
  for (int p = 0; p < 10; ++p)
    for (int i = 0; i < 2; ++i) {
      const double angle = p / 4.0 * (i == 0 ? 1.0 : 0.01);
      EXPECT_EQ(table.cos.data<float>()[2 * p + i], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(table.sin.data<float>()[2 * p + i], static_cast<float>(std::sin(angle)));
    }
}

}  // namespace
}  // namespace megatron
