#include "interop/reference_case.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/check.h"
#include "support/reference_data.h"
#include "support/temporary_folder.h"

namespace megatron::interop {
namespace {

class Case : public ::testing::Test {
 protected:
  struct Item {
    std::string name;
    std::vector<std::int64_t> shape;
    bool integers = true;
  };
  /// Integer tensors count up from 1, float tensors from 0.5.
  void write(const std::vector<Item>& items) {
    std::vector<checkpoint::TensorToWrite> tensors;
    for (const Item& item : items)
      tensors.push_back({item.name, item.integers ? DType::int64 : DType::float32, item.shape});
    checkpoint::SafetensorsWriter writer(path(), tensors);
    for (const Item& item : items) {
      std::size_t count = 1;
      for (const std::int64_t size : item.shape) count *= static_cast<std::size_t>(size);
      std::vector<std::int64_t> integers(count);
      std::iota(integers.begin(), integers.end(), 1);
      std::vector<float> floats(count);
      std::iota(floats.begin(), floats.end(), 0.5F);
      writer.append(item.integers ? std::as_bytes(std::span(integers)) : std::as_bytes(std::span(floats)));
    }
    writer.finish();
  }
  void settings(const std::string& text) { std::ofstream(folder_ / "case.json") << text; }
  std::string path() const { return folder_ / "case.safetensors"; }

  template <typename E, typename F>
  static std::string refusal(F&& f) {
    try {
      f();
    } catch (const E& error) {
      return error.what();
    }
    return "accepted";
  }
  template <typename E>
  std::string refusal() {
    return refusal<E>([&] { ReferenceCase{path()}; });
  }
  static void expect_part(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text << "\n  lacks: " << part;
  }

  const testing::TemporaryFolder folder_;
};

TEST_F(Case, SplitsRowsIntoInputsAndLabels) {
  write({{"tokens", {2, 4}}, {"loss_mask", {2, 3}, false}, {"train_tokens", {2, 1, 3}}});
  const ReferenceCase c(path());
  EXPECT_EQ(c.batch().samples, 2);
  EXPECT_EQ(c.batch().seq_length, 3);
  EXPECT_EQ(c.batch().ids, (std::vector<std::int64_t>{1, 2, 3, 5, 6, 7}));
  EXPECT_EQ(c.batch().labels, (std::vector<std::int64_t>{2, 3, 4, 6, 7, 8}));
  EXPECT_EQ(c.batch().loss_mask, (std::vector<float>{0.5F, 1.5F, 2.5F, 3.5F, 4.5F, 5.5F}));
  ASSERT_EQ(c.train_batches().size(), 2U);
  EXPECT_EQ(c.train_batches()[1].ids, (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(c.train_batches()[1].labels, (std::vector<std::int64_t>{5, 6}));
  EXPECT_EQ(c.train_batches()[1].loss_mask, (std::vector<float>{1.0F, 1.0F}));
  EXPECT_TRUE(c.greedy().empty());
  EXPECT_TRUE(c.settings_path().empty());
  EXPECT_EQ(c.tolerances().final_rms, 2e-6);
  EXPECT_EQ(c.training().beta2, 0.95);
}

TEST_F(Case, TakesInputsAndLabelsApart) {
  write({{"input_ids", {2, 3}}, {"labels", {2, 3}}});
  EXPECT_EQ(ReferenceCase(path()).batch().ids.size(), 6U);
  write({{"input_ids", {2, 3}}, {"labels", {2, 2}}});
  expect_part(refusal<IoError>(), "\"labels\" has another size than input_ids");
}

TEST_F(Case, EverythingIsOptional) {
  write({{"something", {1}}});
  const ReferenceCase c(path());
  EXPECT_EQ(c.batch().samples, 0);
  EXPECT_TRUE(c.train_batches().empty());
}

TEST_F(Case, RefusesShapesThatDoNotFit) {
  write({{"tokens", {8}}});
  expect_part(refusal<IoError>(), "\"tokens\" has shape [8], not [samples, length + 1]");
  write({{"tokens", {2, 1}}});
  expect_part(refusal<IoError>(), "has shape [2, 1]");
  write({{"tokens", {2, 4}}, {"loss_mask", {2, 4}, false}});
  expect_part(refusal<IoError>(), "\"loss_mask\" has shape [2, 4], 6 elements are needed");
  write({{"train_tokens", {2, 4}}});
  expect_part(refusal<IoError>(), "not [steps, samples, length + 1]");
  write({{"tokens", {2, 4}, false}});
  expect_part(refusal<IoError>(), "is F32, not integer");
  write({{"generate.0.prompt", {0}}, {"generate.0.tokens", {3}}});
  expect_part(refusal<IoError>(), "\"generate.0.prompt\" is empty");
  write({{"final_unstable.x", {2}}, {"tokens", {1, 3}}});
  const ReferenceCase c(path());
  EXPECT_EQ(c.unstable("x", 3), (std::vector<std::int64_t>{1, 2}));
  EXPECT_TRUE(c.unstable("y", 3).empty());
  expect_part(refusal<IoError>([&] { c.unstable("x", 2); }), "holds index 2 of 2 elements");
  expect_part(refusal<IoError>([&] { c.values("logits", 2); }), "has no tensor \"logits\"");
  expect_part(refusal<IoError>([&] { c.check_tokens(3); }), "holds token 3, the vocabulary has 3");
  EXPECT_EQ(refusal<IoError>([&] { c.check_tokens(4); }), "accepted");
}

TEST_F(Case, ReadsSettings) {
  write({{"tokens", {1, 3}}});
  settings(
      R"({"tolerance": {"logits_abs": 0.5, "new_one": 1}, "noise_fp32_vs_fp64": {"zero_gradient_tensors": ["grad.a"]},
               "training": {"optimizer": "AdamW", "lr": 0.25, "lr_schedule": "constant", "steps": 20}})");
  const ReferenceCase c(path());
  EXPECT_EQ(c.settings_path(), folder_ / "case.json");
  EXPECT_EQ(c.tolerances().logits_abs, 0.5);
  EXPECT_EQ(c.tolerances().hidden_abs, 1e-5);
  EXPECT_EQ(c.tolerances().zero_gradients.count("grad.a"), 1U);
  EXPECT_EQ(c.training().lr, 0.25);
  for (const char* text :
       {"{", "[]", R"({"tolerance": 1})", R"({"training": {"lr": "big"}})", R"({"training": {"lr": -1}})"}) {
    settings(text);
    expect_part(refusal<IoError>(), folder_ / "case.json: ");
  }
  settings(R"({"training": {"lr_schedule": "cosine"}})");
  expect_part(refusal<ConfigError>(), "lr_schedule = \"cosine\" is not supported");
}

TEST_F(Case, ReadsGoldenCases) {
  const auto golden = testing::reference_dir() / "golden/hf/llama3_rope/case.safetensors";
  MEGATRON_REQUIRE_REFERENCE(golden);
  const ReferenceCase c(golden.string());
  EXPECT_EQ(c.batch().samples, 2);
  EXPECT_EQ(c.batch().seq_length, 32);
  EXPECT_EQ(c.train_batches().size(), 20U);
  ASSERT_EQ(c.greedy().size(), 3U);
  EXPECT_EQ(c.greedy()[2].prompt.size(), 12U);
  EXPECT_EQ(c.greedy()[2].tokens.size(), 24U);
  EXPECT_EQ(c.tolerances().final_abs, 0.002);  // stands in the case.json beside it
  float sum = 0;
  for (const float mask : c.batch().loss_mask) sum += mask;
  EXPECT_EQ(sum, 25.0F);
}

}  // namespace
}  // namespace megatron::interop
