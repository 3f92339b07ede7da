// Models against Megatron Core's own values: logits, token losses, hidden states and every gradient, at several
// layouts. Tolerances are relative to the largest magnitude of the tensor: 2e-6 for values, 1e-5 for gradients (fp32 on
// both sides, other orders of summation).
#include "model/build.h"

#include <gtest/gtest.h>

#include "support/golden_model.h"
#include "support/reference_data.h"
#include "support/run_ranks.h"

namespace megatron {
namespace {

using testing::GoldenCase;
using testing::GoldenOutput;
using testing::WholeTensors;

constexpr double kValueTolerance = 2e-6;
constexpr double kGradientTolerance = 1e-5;

const std::vector<std::string> kCases = {"gpt3",
                                         "gpt3_erf",
                                         "gpt3_untied",
                                         "gpt3_nopos",
                                         "gpt3_kvchannels",
                                         "gpt3_qk_layernorm",
                                         "gpt3_qkvbias_only",
                                         "gpt3_layer_scaling",
                                         "gpt3_post_ln_residual",
                                         "gpt3_nomaskarg",
                                         "gpt3_sqrelu_nobias",
                                         "gpt3_reset",
                                         "llama",
                                         "llama_mha",
                                         "llama_mqa",
                                         "llama_tied",
                                         "llama_unfused",
                                         "llama_rotary_half",
                                         "llama_rotary_interleaved",
                                         "llama_rotary_base",
                                         "llama_rope_scaling",
                                         "llama_rope_interp",
                                         "llama_qk_layernorm",
                                         "llama_geglu",
                                         "llama_geglu_unfused",
                                         "llama_all_iii"};

struct NamedLayout {
  const char* name;
  int tp, pp;
  bool sequence_parallel;
};
constexpr NamedLayout kLayouts[] = {
    {"tp1", 1, 1, false}, {"tp2", 2, 1, false}, {"tp2sp", 2, 1, true}, {"pp2", 1, 2, false}, {"tp2sp_pp2", 2, 2, true}};

void expect_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                  const std::string& what) {
  EXPECT_EQ(got.size(), want.size()) << what;
  EXPECT_LE(testing::relative_max_error(got, want), tolerance) << what;
}

void compare(const GoldenOutput& output, const checkpoint::SafetensorsFile& file) {
  expect_close(output.losses, file.read_double("out.loss_per_token"), kValueTolerance, "token losses");
  if (file.has("out.logits")) expect_close(output.logits, file.read_double("out.logits"), kValueTolerance, "logits");
  const std::vector<std::int64_t>& shape = file.info("in.tokens").shape;
  const auto hidden = [&](const std::string& name) {
    return testing::sample_major(file.read_double("act." + name), shape[1], shape[0]);
  };
  expect_close(output.hidden.at(0), hidden("embedding"), kValueTolerance, "embedding");
  for (std::size_t i = 1; i < output.hidden.size(); ++i) {
    const std::string name = "decoder.layers." + std::to_string(i - 1);
    expect_close(output.hidden[i], hidden(name), kValueTolerance, name);
  }
  const WholeTensors want = testing::golden_tensors(file, "grad.");
  EXPECT_EQ(output.gradients.size(), want.size());
  for (const auto& [name, gradient] : want) {
    ASSERT_TRUE(output.gradients.count(name)) << name;
    expect_close(output.gradients.at(name), gradient, kGradientTolerance, "gradient of " + name);
  }
}

class GoldenModel : public ::testing::TestWithParam<std::tuple<std::string, NamedLayout>> {};

TEST_P(GoldenModel, AgreesWithMegatronCore) {
  const auto& [name, layout] = GetParam();
  const auto folder = testing::reference_dir() / "golden/mcore/model";
  MEGATRON_REQUIRE_REFERENCE(folder);
  const GoldenCase golden = testing::read_golden_cases((folder / "cases.json").string(), {name}).front();
  const checkpoint::SafetensorsFile file((folder / (name + ".safetensors")).string());
  const WholeTensors parameters = testing::golden_tensors(file, "param.");
  const auto parallel = testing::make_parallel(layout.tp, layout.pp, 1, layout.sequence_parallel);
  compare(testing::run_golden(golden, parallel, parameters, testing::golden_batch(file), DType::float32), file);
}

INSTANTIATE_TEST_SUITE_P(AllCases, GoldenModel,
                         ::testing::Combine(::testing::ValuesIn(kCases), ::testing::ValuesIn(kLayouts)),
                         [](const auto& test) { return std::get<0>(test.param) + "_" + std::get<1>(test.param).name; });

}  // namespace
}  // namespace megatron
