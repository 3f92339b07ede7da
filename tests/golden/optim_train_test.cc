// Whole training runs of Megatron Core (loss, gradients, data parallelism, optimizer, schedules) against ours. Runs
// that average every micro-batch by its own token count are fed masks of 1/n: Σ mask is then the number of
// micro-batches.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/float16.h"
#include "checkpoint/safetensors.h"
#include "support/reference_data.h"
#include "support/small_run.h"

namespace megatron {
namespace {

using checkpoint::SafetensorsFile;
using nlohmann::json;
using testing::complete;
using testing::Layout;
using testing::relative_rms;
using testing::SmallOptions;
using testing::SmallResult;
using testing::Weights;

class FixedRows final : public data::Dataset {
 public:
  FixedRows(std::vector<std::int64_t> tokens, std::vector<float> mask, std::int64_t length)
      : tokens_(std::move(tokens)), mask_(std::move(mask)), length_(length) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(mask_.size()) / length_; }
  data::Sample get(std::int64_t index) const override {
    data::Sample sample;
    for (std::int64_t i = 0; i < length_; ++i) {
      const auto at = static_cast<std::size_t>(index * (length_ + 1) + i);
      sample.tokens.push_back(tokens_[at]);
      sample.labels.push_back(tokens_[at + 1]);
      sample.loss_mask.push_back(mask_[static_cast<std::size_t>(index * length_ + i)]);
      sample.position_ids.push_back(i);
    }
    sample.sequence_starts = {0, length_};
    return sample;
  }

 private:
  std::vector<std::int64_t> tokens_;
  std::vector<float> mask_;
  std::int64_t length_;
};

constexpr std::int64_t kLength = 12;

std::filesystem::path optim_dir() { return testing::reference_dir() / "golden/mcore/optim"; }

/// Masks divided by the trained tokens of their micro-batch of `rows` rows.
std::vector<float> averaged(std::vector<float> mask, std::int64_t rows) {
  for (std::size_t begin = 0; begin < mask.size(); begin += static_cast<std::size_t>(rows * kLength)) {
    const std::size_t end = begin + static_cast<std::size_t>(rows * kLength);
    double tokens = 0;
    for (std::size_t i = begin; i < end; ++i) tokens += mask[i];
    for (std::size_t i = begin; i < end; ++i) mask[i] = static_cast<float>(mask[i] / std::max(tokens, 1.0));
  }
  return mask;
}

spec::RunSpec make_run(const json& record) {
  const json& o = record["options"];
  spec::RunSpec run;
  spec::ModelSpec& m = run.model;
  m.num_layers = 2;
  m.hidden_size = 24;
  m.num_attention_heads = 4;
  m.ffn_hidden_size = 48;
  m.vocab_size = 64;
  m.make_vocab_size_divisible_by = 1;
  m.seq_length = m.max_position_embeddings = kLength;
  m.activation = spec::Activation::gelu_erf;
  m.hidden_dropout = m.attention_dropout = 0.0;
  m.untie_embeddings_and_output_weights = !o["tied"].get<bool>();
  spec::OptimizerSpec& p = run.optimizer;
  p.kind = o["optimizer"] == "sgd" ? spec::OptimizerKind::sgd : spec::OptimizerKind::adam;
  p.lr = o["lr"].get<double>();
  p.min_lr = o["min_lr"];
  p.adam_beta1 = o["adam_beta1"];
  p.adam_beta2 = o["adam_beta2"];
  p.adam_eps = o["adam_eps"];
  p.sgd_momentum = o["sgd_momentum"];
  p.weight_decay = o["weight_decay"];
  p.clip_grad = o["clip_grad"];
  p.lr_decay_style = o["lr_style"] == "cosine" ? spec::DecayStyle::cosine : spec::DecayStyle::linear;
  p.lr_warmup_samples = o["lr_warmup_samples"];
  p.lr_decay_samples = o["lr_decay_samples"].get<std::int64_t>();
  run.batch.global_batch_size = record["global_batch"];
  run.batch.train_samples = record["global_batch"].get<std::int64_t>() * record["steps"].get<std::int64_t>();
  run.batch.eval_iters = 0;
  run.log.log_num_zeros_in_grad = true;
  run.parallel.threads_per_rank = 1;
  run.parallel.use_distributed_optimizer = o["dopt"].get<bool>();
  if (o["bf16"].get<bool>()) run.numerics.params_dtype = DType::bfloat16;
  if (o["fp16"].get<bool>()) {
    run.numerics.params_dtype = DType::float16;
    run.numerics.loss_scale.initial = 65536;
    run.numerics.loss_scale.window = 2;
    run.numerics.loss_scale.hysteresis = 1;
  }
  return run;
}

struct Tolerance {
  double loss, grad_norm, weights;
};

/// 16-bit activations are rounded where each program puts them into memory, so they agree to a few roundings.
Tolerance tolerance_of(const json& record) {
  if (record["options"]["bf16"].get<bool>()) return {1e-3, 3e-3, 5e-4};
  if (record["options"]["fp16"].get<bool>()) return {2e-4, 1e-3, 1e-4};
  return {1e-5, 2e-5, 2e-5};
}

Weights read_all(const SafetensorsFile& file, const std::string& prefix) {
  Weights weights;
  for (const auto& info : file.tensors())
    if (info.name.rfind(prefix, 0) == 0) weights[info.name.substr(prefix.size())] = file.read_float(info.name);
  return weights;
}

/// The key rows of linear_qkv.bias have the exact gradient 0: what Adam makes of rounding noise is not compared.
void blank_key_bias(Weights& weights) {
  for (auto& [name, values] : weights) {
    if (name.find("linear_qkv.bias") == std::string::npos) continue;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (i % 18 >= 6 && i % 18 < 12) values[i] = 0.0F;
  }
}

void expect_close(Weights ours, Weights theirs, double tolerance, const char* what) {
  blank_key_bias(ours);
  blank_key_bias(theirs);
  ASSERT_FALSE(theirs.empty());
  for (const auto& [name, values] : theirs) {
    ASSERT_TRUE(ours.count(name)) << name;
    EXPECT_LT(relative_rms(ours.at(name), values), tolerance) << what << " " << name;
  }
}

double rms_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

/// Main weights of a 16-bit run, by the rms of the difference. Adam makes steps of full length out of the rounding
/// noise in a bias of queries and keys, whose true gradient is small or zero.
void expect_main_weights(const Weights& ours, const Weights& theirs, double tolerance) {
  ASSERT_FALSE(theirs.empty());
  for (const auto& [name, values] : theirs) {
    if (name.find("linear_qkv.bias") != std::string::npos) continue;
    ASSERT_EQ(ours.at(name).size(), values.size()) << name;
    EXPECT_LT(rms_difference(ours.at(name), values), tolerance) << name;
  }
}

/// Σ loss ÷ trained tokens of each step of one rank, from the losses of its micro-batches.
class TokenLosses {
 public:
  TokenLosses(std::vector<float> mask, std::int64_t global_batch) : mask_(std::move(mask)), global_(global_batch) {}
  void observe(const Tensor& losses) {
    const auto* values = losses.data<float>();
    for (std::int64_t i = 0; i < losses.numel(); ++i, ++next_) {
      if (next_ % (global_ * kLength) == 0) sums_.push_back({0.0, 0.0});
      const double weight = static_cast<double>(mask_[static_cast<std::size_t>(next_)]);
      sums_.back().first += weight * static_cast<double>(values[i]);
      sums_.back().second += weight;
    }
  }
  double of_step(std::size_t step) const { return sums_.at(step).first / sums_.at(step).second; }

 private:
  std::vector<float> mask_;
  std::int64_t global_, next_ = 0;
  std::vector<std::pair<double, double>> sums_;
};

/// Each weight of a 16-bit run is its main weight rounded to nearest even.
void expect_rounded(const Weights& values, const Weights& mains, DType dtype) {
  for (const auto& [name, main] : mains) {
    const std::vector<float>& value = values.at(name);
    ASSERT_EQ(value.size(), main.size()) << name;
    for (std::size_t i = 0; i < main.size(); ++i) {
      const float rounded =
          dtype == DType::bfloat16 ? static_cast<float>(BFloat16(main[i])) : static_cast<float>(Float16(main[i]));
      ASSERT_EQ(value[i], rounded) << name << " element " << i;
    }
  }
}

using Strategy = spec::ShardingStrategy;

/// `strategy`: unset as the record says.
void check_case(const json& record, const Layout& layout, std::optional<Strategy> strategy = {}) {
  SCOPED_TRACE(str_cat(record["name"].get<std::string>(), " ", testing::layout_text(layout), " ",
                       strategy.has_value() ? static_cast<int>(*strategy) : -1));
  const SafetensorsFile data((optim_dir() / "train_adam.dp1.safetensors").string());
  const bool per_token = record["options"]["calculate_per_token_loss"];
  const std::int64_t rows = record["micro_batch"];
  std::vector<float> mask = data.read_float("data.loss_mask");
  TokenLosses losses(mask, record["global_batch"]);
  if (!per_token) mask = averaged(std::move(mask), rows);
  SmallOptions options;
  options.train = std::make_shared<FixedRows>(data.read_int64("data.tokens"), mask, kLength);
  const std::string name = record["name"];
  const std::string stem = str_cat("train_", name, ".dp", record["dp"].get<int>(), ".safetensors");
  const SafetensorsFile expected((optim_dir() / stem).string());
  const bool own_weights = name == "adam_untied" || name == "adam_bf16" || name == "adam_fp16";
  options.initial = read_all(own_weights ? expected : data, "init.");

  std::map<std::string, Weights> states;
  std::mutex mutex;
  options.hooks.after_setup = [&](train::RankParts& parts) {
    if (layout.world() == 1)
      parts.engine().set_loss_observer([&losses](std::int64_t, const Tensor& values) { losses.observe(values); });
  };
  options.hooks.at_end = [&](train::RankParts& parts) {
    const std::lock_guard<std::mutex> lock(mutex);
    for (optim::OptimizerState& state : parts.optimizer().states())
      if (!state.range.parameter->tied_use && layout.world() == 1)
        states[state.kind][state.range.parameter->name] = {state.tensor.data<float>(),
                                                           state.tensor.data<float>() + state.tensor.numel()};
  };
  spec::RunSpec asked = make_run(record);
  if (strategy.has_value()) {
    asked.parallel.use_megatron_fsdp = true;
    asked.parallel.data_parallel_sharding_strategy = *strategy;
  }
  const spec::RunSpec run = complete(std::move(asked), layout);
  const bool narrow = is_16_bit_float(run.numerics.params_dtype);
  const SmallResult result = train_small(run, options);
  const Tolerance tolerance = tolerance_of(record);
  const json& golden = record["ok"]["rows"];
  ASSERT_EQ(result.steps.size(), golden.size());
  for (std::size_t i = 0; i < golden.size(); ++i) {
    EXPECT_NEAR(result.steps[i].grad_norm / golden[i]["grad_norm"].get<double>(), 1.0, tolerance.grad_norm)
        << "step " << i;
    EXPECT_DOUBLE_EQ(result.steps[i].lr, golden[i]["lr_used"][0].get<double>());
    if (run.numerics.params_dtype == DType::float16) {
      EXPECT_EQ(result.steps[i].loss_scale, golden[i]["loss_scale"].get<double>());
    }
    if (layout.world() == 1) {
      EXPECT_NEAR(losses.of_step(i), golden[i]["loss"].get<double>(), tolerance.loss) << "step " << i;
    }
    if (per_token) {
      EXPECT_NEAR(result.steps[i].loss, golden[i]["loss"].get<double>(), tolerance.loss);
      EXPECT_EQ(result.steps[i].token_sum, golden[i]["tokens"].get<double>());
    }
  }
  if (!narrow) expect_close(result.weights, read_all(expected, "final."), tolerance.weights, "final");
  if (narrow && states.count("fp32_param") > 0)
    expect_rounded(result.weights, states["fp32_param"], run.numerics.params_dtype);
  for (const auto& [kind, values] : states) {
    const bool main = kind == "fp32_param";
    const Weights theirs = read_all(expected, main ? "main." : kind + ".");
    if (theirs.empty()) continue;
    if (main)
      expect_main_weights(values, theirs, tolerance.weights);
    else if (!narrow)
      expect_close(values, theirs, 1e-4, kind.c_str());
  }
}

bool is_dense(const json& record) { return !record["options"]["moe"].get<bool>() && record.contains("ok"); }

TEST(GoldenOptimTrain, RunsOfMegatronCore) {
  for (const int dp : {1, 2, 4}) {
    const auto path = optim_dir() / str_cat("train.dp", dp, ".json");
    MEGATRON_REQUIRE_REFERENCE(path);
    const json records = json::parse(std::ifstream(path));
    int checked = 0;
    for (const json& record : records) {
      if (!is_dense(record)) continue;
      const Layout layout = {1, 1, dp, false, record["micro_batch"].get<std::int64_t>()};
      check_case(record, layout);
      if (dp > 1) check_case(record, layout, dp == 2 ? Strategy::optim_grads_params : Strategy::optim_grads);
      ++checked;
    }
    EXPECT_GE(checked, dp == 4 ? 1 : 5);
  }
}

TEST(GoldenOptimTrain, OtherLayoutsGiveTheSame) {
  const auto path = optim_dir() / "train.dp1.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  for (const json& record : json::parse(std::ifstream(path))) {
    if (record["name"] != "adam_per_token" && record["name"] != "adam" && record["name"] != "sgd") continue;
    for (const Layout& layout : {Layout{2, 1, 1, true, 2}, Layout{1, 2, 2, false, 1}, Layout{2, 2, 1, false, 4}})
      check_case(record, layout);
  }
}

}  // namespace
}  // namespace megatron
