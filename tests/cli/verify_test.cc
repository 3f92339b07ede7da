// megatron verify as a user calls it: the golden models at several layouts, spoiled references, files that lack keys,
// and layouts or models that cannot be taken.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "checkpoint/safetensors.h"
#include "support/reference_data.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

namespace fs = std::filesystem;
using checkpoint::SafetensorsFile;
using nlohmann::json;

struct Result {
  int status = -1;
  std::string out, all;  // standard output; with standard error behind it
};

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class Verify : public ::testing::Test {
 protected:
  Result verify(const std::string& arguments) {
    const std::string out = folder_ / "out.txt", err = folder_ / "err.txt";
    const int status = std::system(
        ("'" MEGATRON_BINARY "' verify " + arguments + " >'" + out + "' 2>'" + err + "' </dev/null").c_str());
    Result result;
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    result.out = read_file(out);
    result.all = result.out + read_file(err);
    return result;
  }
  static std::string golden(const std::string& name) {
    return (testing::reference_dir() / "golden/hf" / name).string();
  }
  static std::string arguments(const std::string& model, const std::string& reference, const std::string& more) {
    return "--hf '" + model + "' --reference '" + reference + "' " + more;
  }
  const testing::TemporaryFolder folder_;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::map<std::string, json> by_quantity(const std::string& lines) {
  std::map<std::string, json> objects;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const json object = json::parse(line);
    EXPECT_EQ(object.size(), 4U) << line;
    objects[object.at("quantity")] = object;
  }
  return objects;
}

using Change = std::function<bool(const std::string& name, std::vector<float>& values)>;

/// Copies a case; `change` may spoil float tensors and returns false for tensors to leave out (integers: values is
/// empty).
void copy_case(const std::string& from, const std::string& to, const Change& change) {
  const SafetensorsFile file(from);
  std::vector<checkpoint::TensorToWrite> tensors;
  std::vector<std::vector<std::byte>> data;
  for (const checkpoint::TensorInfo& info : file.tensors()) {
    if (info.name.rfind("float64.", 0) == 0) continue;
    const bool integers = info.dtype == checkpoint::FileDType::i64;
    std::vector<float> values;
    if (!integers) values = file.read_float(info.name);
    if (!change(info.name, values)) continue;
    tensors.push_back({info.name, integers ? DType::int64 : DType::float32, info.shape});
    const auto bytes = integers ? file.bytes(info.name) : std::as_bytes(std::span<const float>(values));
    data.emplace_back(bytes.begin(), bytes.end());
  }
  checkpoint::SafetensorsWriter writer(to, tensors);
  for (const auto& bytes : data) writer.append(bytes);
  writer.finish();
}

TEST_F(Verify, GoldenModelsHoldAtEveryLayout) {
  MEGATRON_REQUIRE_REFERENCE(testing::reference_dir() / "golden/hf");
  const std::map<std::string, std::size_t> quantities{
      {"gpt2", 68}, {"llama", 54}, {"llama3_rope", 54}, {"llama_bias_tied", 80}};
  for (const auto& [name, count] : quantities)
    for (const char* layout :
         {"", "--tensor-model-parallel-size 2", "--tensor-model-parallel-size 2 --sequence-parallel",
          "--pipeline-model-parallel-size 2", "--world-size 2", "--micro-batch-size 2",
          "--world-size 4 --pipeline-model-parallel-size 2 --use-distributed-optimizer",
          "--world-size 4 --tensor-model-parallel-size 2 --use-megatron-fsdp",
          "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel --world-size 8"}) {
      const Result result = verify(arguments(golden(name), golden(name) + "/case.safetensors", layout) + " --json");
      EXPECT_EQ(result.status, 0) << name << " " << layout << "\n" << result.all;
      const auto objects = by_quantity(result.out);
      EXPECT_EQ(objects.size(), count) << name << " " << layout;
      for (const auto& [quantity, object] : objects) {
        EXPECT_TRUE(object.at("ok")) << name << " " << layout << " " << object;
        EXPECT_LE(object.at("error").get<double>(), object.at("tolerance").get<double>());
      }
      for (const char* quantity : {"logits", "hidden.0", "hidden.2", "token_losses", "loss", "grad_norm", "train.loss",
                                   "train.grad_norm", "generate.0.tokens", "generate.2.tokens"})
        EXPECT_EQ(objects.count(quantity), 1U) << quantity;
    }
}

TEST_F(Verify, SpoiledReferencesAreFound) {
  const std::string model = golden("llama_bias_tied");
  MEGATRON_REQUIRE_REFERENCE(fs::path(model));
  fs::copy_file(model + "/case.json", folder_ / "case.json");
  // Quantity → the key that is spoiled, by about twice its tolerance.
  const std::map<std::string, double> spoiled{{"logits", 2e-5},
                                              {"hidden.1", 2e-5},
                                              {"token_losses", 2e-5},
                                              {"loss", 1.5e-5},
                                              {"grad.model.layers.1.mlp.up_proj.bias", 0},
                                              {"grad_norm", 1e-4},
                                              {"train.loss", 2e-5},
                                              {"train.grad_norm", 3e-4},
                                              {"final.model.layers.0.self_attn.k_proj.weight", 4e-6}};
  copy_case(model + "/case.safetensors", folder_ / "case.safetensors", [&](const std::string& name, auto& values) {
    const auto found = spoiled.find(name);
    if (found == spoiled.end()) return true;
    double step = found->second;
    if (name.rfind("grad.", 0) == 0) {
      for (const float value : values) step = std::max(step, 2e-5 * std::abs(static_cast<double>(value)));
      values[3] += static_cast<float>(step);
    } else if (name.rfind("final.", 0) == 0) {
      for (float& value : values) value += static_cast<float>(step);
    } else {
      values.back() += static_cast<float>(step);
    }
    return true;
  });
  const Result result = verify(arguments(model, folder_ / "case.safetensors", "--json --tensor-model-parallel-size 2"));
  EXPECT_EQ(result.status, 1);
  for (const auto& [quantity, object] : by_quantity(result.out))
    EXPECT_EQ(object.at("ok").get<bool>(), spoiled.count(quantity) == 0) << object;
}

TEST_F(Verify, ASingleFarElementAndTheUnstableOnes) {
  const std::string model = golden("gpt2");
  MEGATRON_REQUIRE_REFERENCE(fs::path(model));
  fs::copy_file(model + "/case.json", folder_ / "case.json");
  const SafetensorsFile file(model + "/case.safetensors");
  const std::string unstable = "transformer.h.0.attn.c_attn.bias", stable = "transformer.h.1.ln_2.bias";
  const auto places = file.read_int64("final_unstable." + unstable);
  const std::set<std::int64_t> listed(places.begin(), places.end());
  const auto run = [&](const std::string& name, std::int64_t at, double step) {
    copy_case(model + "/case.safetensors", folder_ / "case.safetensors", [&](const std::string& key, auto& values) {
      if (key == "final." + name) values[static_cast<std::size_t>(at)] += static_cast<float>(step);
      return true;
    });
    const Result result = verify(arguments(model, folder_ / "case.safetensors", "--json"));
    return by_quantity(result.out).at("final." + name);
  };
  EXPECT_TRUE(run(unstable, places[5], 0.01).at("ok"));
  EXPECT_FALSE(run(unstable, places[5], 0.05).at("ok"));  // beyond 20 steps of lr
  std::int64_t other = 0;
  while (listed.count(other) != 0) ++other;
  EXPECT_FALSE(run(unstable, other, 0.001).at("ok"));
  EXPECT_FALSE(run(stable, 0, 0.001).at("ok"));
}

/// What is computed again has the same bits, so the report is the same to the letter.
TEST_F(Verify, RecomputeChangesNothing) {
  const std::string model = golden("llama");
  MEGATRON_REQUIRE_REFERENCE(fs::path(model));
  const std::string reference = model + "/case.safetensors";
  const Result plain = verify(arguments(model, reference, "--json --tensor-model-parallel-size 2"));
  ASSERT_EQ(plain.status, 0) << plain.all;
  for (const char* recompute :
       {"--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "--recompute-granularity full --recompute-method block --recompute-num-layers 1 --distribute-saved-activations",
        "--recompute-granularity selective --recompute-modules layernorm mlp", "--recompute-activations"}) {
    const Result again =
        verify(arguments(model, reference, std::string("--json --tensor-model-parallel-size 2 ") + recompute));
    EXPECT_EQ(again.status, 0) << again.all;
    EXPECT_EQ(again.out, plain.out) << recompute;
  }
}

TEST_F(Verify, KeysThatAreNotThereAreNotCompared) {
  const std::string model = golden("llama");
  MEGATRON_REQUIRE_REFERENCE(fs::path(model));
  copy_case(model + "/case.safetensors", folder_ / "case.safetensors", [](const std::string& name, auto&) {
    return name == "tokens" || name == "loss_mask" || name == "loss" || name == "grad.model.norm.weight";
  });
  const Result result = verify(arguments(model, folder_ / "case.safetensors", ""));
  EXPECT_EQ(result.status, 0) << result.all;
  EXPECT_TRUE(contains(result.all, "no case.json beside")) << result.all;
  EXPECT_TRUE(contains(result.all, "loss_abs 8e-06"));
  EXPECT_TRUE(contains(result.all, "2 compared, 0 outside, 50 not compared")) << result.all;
  EXPECT_TRUE(contains(result.all, "not compared\n"));
  const Result lines = verify(arguments(model, folder_ / "case.safetensors", "--json"));
  EXPECT_EQ(by_quantity(lines.out).size(), 2U);
  copy_case(model + "/case.safetensors", folder_ / "case.safetensors",
            [](const std::string& name, auto&) { return name == "loss_mask"; });
  const Result nothing = verify(arguments(model, folder_ / "case.safetensors", ""));
  EXPECT_EQ(nothing.status, 1);
  EXPECT_TRUE(contains(nothing.all, "nothing was compared"));
}

TEST_F(Verify, RefusesLayoutsAndModelsByName) {
  MEGATRON_REQUIRE_REFERENCE(testing::reference_dir() / "golden/hf");
  const auto refused = [&](const std::string& model, const std::string& layout, const std::string& part) {
    const Result result = verify(arguments(golden(model), golden("llama") + "/case.safetensors", layout));
    EXPECT_EQ(result.status, 2) << layout << "\n" << result.all;
    EXPECT_TRUE(contains(result.all, part)) << layout << "\n" << result.all;
    EXPECT_TRUE(result.out.empty()) << result.out;
  };
  refused("llama", "--tensor-model-parallel-size 3", "--tensor-model-parallel-size");
  refused("llama", "--pipeline-model-parallel-size 3", "--pipeline-model-parallel-size");
  refused("llama", "--world-size 3", "data parallel size 3");
  refused("llama", "--world-size 4", "does not divide the 2 samples");
  refused("llama", "--micro-batch-size 4", "--micro-batch-size 4");
  refused("llama", "--hidden-size 8", "--hidden-size: model, data and training come from --hf and --reference");
  refused("llama", "--lr 1 --log-json f", "--log-json, --lr: model, data and training come from --hf and --reference");
  refused("llama", "--no-such-option", "--no-such-option");
  refused("mistral", "", "model_type \"mistral\"");
  refused("qwen3_moe", "", "model_type \"qwen3_moe\"");
  EXPECT_EQ(verify("--hf x").status, 2);
  EXPECT_TRUE(contains(verify("--hf x").all, "--reference is missing"));
  EXPECT_EQ(verify("--hf '" + golden("nowhere") + "' --reference '" + golden("llama") + "/case.safetensors'").status,
            1);
}

/// A Llama whose head is zero: every logit is 0, every loss ln(vocabulary), whatever the rest computes. No
/// tensor-parallel size divides the vocabulary, so padding would show.
class UniformModel : public Verify {
 protected:
  void SetUp() override {
    std::ofstream(folder_ / "config.json") << json{
        {"model_type", "llama"},    {"hidden_size", 8},        {"num_hidden_layers", 2},
        {"num_attention_heads", 4}, {"intermediate_size", 12}, {"max_position_embeddings", 16},
        {"vocab_size", 37}}.dump();
    std::vector<checkpoint::TensorToWrite> tensors{{"lm_head.weight", DType::float32, {37, 8}},
                                                   {"model.embed_tokens.weight", DType::float32, {37, 8}},
                                                   {"model.norm.weight", DType::float32, {8}}};
    for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
      for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
        tensors.push_back({layer + "self_attn." + name + ".weight", DType::float32, {8, 8}});
      for (const char* name : {"gate_proj", "up_proj"})
        tensors.push_back({layer + "mlp." + name + ".weight", DType::float32, {12, 8}});
      tensors.push_back({layer + "mlp.down_proj.weight", DType::float32, {8, 12}});
      for (const char* name : {"input_layernorm", "post_attention_layernorm"})
        tensors.push_back({layer + name + ".weight", DType::float32, {8}});
    }
    checkpoint::SafetensorsWriter writer(folder_ / "model.safetensors", tensors);
    float next = 0.1F;
    for (const auto& tensor : tensors) {
      std::vector<float> values(
          static_cast<std::size_t>(tensor.shape[0] * (tensor.shape.size() == 2 ? tensor.shape[1] : 1)));
      for (float& value : values)
        value = tensor.name == "lm_head.weight" ? 0.0F : (next = std::fmod(next * 1.7F, 1.0F)) - 0.4F;
      writer.append(std::as_bytes(std::span(values)));
    }
    writer.finish();
  }

  /// Four sequences of 6 tokens, the exact values of a uniform model, and `loss_shift` added to the loss.
  void write_case(float loss_shift, std::int64_t first_token = 3) {
    std::vector<std::int64_t> tokens(4 * 7);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int64_t>(i * i % 37);
    tokens[0] = first_token;
    const float loss = std::log(37.0F);
    const std::vector<float> logits(4 * 6 * 37, 0.0F), losses(4 * 6, loss), mean{loss + loss_shift};
    checkpoint::SafetensorsWriter writer(folder_ / "case.safetensors", {{"tokens", DType::int64, {4, 7}},
                                                                        {"logits", DType::float32, {4, 6, 37}},
                                                                        {"token_losses", DType::float32, {4, 6}},
                                                                        {"loss", DType::float32, {1}}});
    writer.append(std::as_bytes(std::span(tokens)));
    for (const auto* values : {&logits, &losses, &mean}) writer.append(std::as_bytes(std::span(*values)));
    writer.finish();
  }
};

TEST_F(UniformModel, LossIsTheLogarithmOfTheVocabulary) {
  write_case(0.0F);
  for (const char* layout :
       {"", "--tensor-model-parallel-size 2 --sequence-parallel", "--pipeline-model-parallel-size 2",
        "--tensor-model-parallel-size 4", "--world-size 4", "--world-size 2 --micro-batch-size 2"}) {
    const Result result =
        verify(arguments(folder_.path(), folder_ / "case.safetensors", layout) + std::string(" --json"));
    EXPECT_EQ(result.status, 0) << layout << "\n" << result.all;
    const auto objects = by_quantity(result.out);
    EXPECT_EQ(objects.size(), 3U);
    EXPECT_EQ(objects.at("logits").at("error"), 0.0);
    EXPECT_LE(objects.at("loss").at("error").get<double>(), 1e-6);
    EXPECT_EQ(objects.at("loss").at("tolerance"), 8e-6);
  }
  write_case(1e-4F);
  EXPECT_EQ(verify(arguments(folder_.path(), folder_ / "case.safetensors", "")).status, 1);
}

TEST_F(UniformModel, RefusesDamagedCases) {
  write_case(0.0F, 37);
  Result result = verify(arguments(folder_.path(), folder_ / "case.safetensors", ""));
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.all, "holds token 37, the vocabulary has 37")) << result.all;
  write_case(0.0F);
  std::ofstream(folder_ / "case.json") << "{\"tolerance\": {\"loss_abs\": \"small\"}}";
  result = verify(arguments(folder_.path(), folder_ / "case.safetensors", ""));
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.all, "\"loss_abs\" is \"small\", not a number")) << result.all;
  std::ofstream(folder_ / "case.json") << "{\"training\": {\"optimizer\": \"Adafactor\"}}";
  result = verify(arguments(folder_.path(), folder_ / "case.safetensors", ""));
  EXPECT_EQ(result.status, 2);
  EXPECT_TRUE(contains(result.all, "optimizer = \"Adafactor\" is not supported")) << result.all;
  std::ofstream(folder_ / "case.json") << "{\"tolerance\": {\"loss_abs\": 1e-9}}";
  result = verify(arguments(folder_.path(), folder_ / "case.safetensors", ""));
  EXPECT_TRUE(contains(result.all, "loss_abs 1e-09")) << result.all;
  fs::resize_file(folder_ / "case.safetensors", 300);
  result = verify(arguments(folder_.path(), folder_ / "case.safetensors", ""));
  EXPECT_EQ(result.status, 1);
  EXPECT_TRUE(contains(result.all, "case.safetensors: at offset")) << result.all;
}

}  // namespace
}  // namespace megatron
