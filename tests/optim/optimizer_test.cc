#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "kernels/elementwise.h"
#include "made_parameter.h"
#include "support/reference_data.h"
#include "support/run_ranks.h"

namespace megatron::optim {
namespace {

using testing::make_parallel;
using testing::run_mesh;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Calls fn on the only rank of a run.
void alone(const std::function<void(mesh::Rank&)>& fn) { run_mesh(make_parallel(1), fn); }

UpdateInput update(double lr, double weight_decay, double token_sum = 1.0) {
  return {lr, weight_decay, token_sum, 1.0};
}

/// p0 = 1, gradients ½, −¼, 1, lr 1e-3, decay 0.01: values of the reference.
TEST(Optimizer, AdamWThreeSteps) {
  alone([](mesh::Rank& rank) {
    auto p = made_parameter(rank.exec, "w", 1, 1);
    set_values(p->value, {1.0F});
    spec::OptimizerSpec spec;
    spec.clip_grad = 0;
    Optimizer optimizer(rank, std::vector{p.get()}, spec);
    const double expected_p[] = {0.998990000020, 0.998713673087, 0.998045574360};
    const double expected_m[] = {0.05, 0.02, 0.118}, expected_v[] = {0.00025, 0.00031225, 0.001311938};
    const float grads[] = {0.5F, -0.25F, 1.0F};
    for (int i = 0; i < 3; ++i) {
      set_values(p->main_grad, {grads[i]});
      const UpdateResult result = optimizer.step(update(1e-3, 0.01));
      EXPECT_FALSE(result.skipped);
      EXPECT_DOUBLE_EQ(result.grad_norm, std::abs(grads[i]));
      EXPECT_NEAR(p->value.data<float>()[0], expected_p[i], 1e-7);
      EXPECT_NEAR(optimizer.states()[0].tensor.data<float>()[0], expected_m[i], 1e-8);
      EXPECT_NEAR(optimizer.states()[1].tensor.data<float>()[0], expected_v[i], 1e-9);
    }
    EXPECT_EQ(optimizer.num_updates(), 3);
  });
}

/// Without gradients matrices shrink by the decay alone, also where one update is far below the spacing of bfloat16;
/// norm weights and biases stay.
TEST(Optimizer, DecayAloneShrinksMatrices) {
  for (const DType dtype : {DType::float32, DType::bfloat16})
    alone([&](mesh::Rank& rank) {
      auto matrix = made_parameter(rank.exec, "w", 2, 2);
      auto norm = made_parameter(rank.exec, "n", 2, 0);
      for (const auto& p : {matrix.get(), norm.get()}) {
        p->value = rank.exec.empty(p->value.shape(), dtype, MemoryKind::parameter);
        p->main_grad = rank.exec.zeros(p->value.shape(), DType::float32, MemoryKind::gradient);
      }
      Optimizer optimizer(rank, std::vector{matrix.get(), norm.get()}, spec::OptimizerSpec{});
      for (nn::Parameter* p : {matrix.get(), norm.get()}) {
        Tensor wide = rank.exec.empty(p->value.shape(), DType::float32);
        for (std::int64_t i = 0; i < wide.numel(); ++i) wide.data<float>()[i] = 1.5F;
        kernels::copy(rank.exec, wide, p->value);
        optimizer.set_main_weight(*p, wide);
      }
      for (int step = 0; step < 1000; ++step) optimizer.step(update(1e-4, 0.1));
      Tensor wide = rank.exec.empty({2, 2}, DType::float32), still = rank.exec.empty({2}, DType::float32);
      kernels::copy(rank.exec, matrix->value, wide);
      kernels::copy(rank.exec, norm->value, still);
      const double expected = 1.5 * std::pow(1.0 - 1e-5, 1000);  // about one per cent less
      const Tensor main = dtype == DType::float32 ? wide : optimizer.states()[0].tensor;
      EXPECT_NEAR(main.data<float>()[0], expected, 1e-4);
      EXPECT_NEAR(wide.data<float>()[0], expected, dtype == DType::float32 ? 1e-4 : 0.004);
      EXPECT_EQ(still.data<float>()[1], 1.5F);
    });
}

TEST(Optimizer, StatesAreNamed) {
  alone([](mesh::Rank& rank) {
    auto w = made_parameter(rank.exec, "w", 2, 3);
    auto table = made_parameter(rank.exec, "t", 4, 2);
    auto use = made_parameter(rank.exec, "t", 4, 2);
    use->tied_use = true;
    use->value = table->value;
    auto frozen = made_parameter(rank.exec, "f", 4, 0);
    frozen->trainable = false;
    std::vector<nn::Parameter*> all = {table.get(), w.get(), frozen.get(), use.get()};
    spec::OptimizerSpec spec;
    const auto names = [](Optimizer& optimizer) {
      std::string text;
      for (const OptimizerState& state : optimizer.states())
        text += state.kind + ":" + state.range.parameter->name + " ";
      return text;
    };
    Optimizer adam(rank, all, spec);
    EXPECT_EQ(names(adam), "exp_avg:t exp_avg_sq:t exp_avg:w exp_avg_sq:w ");
    EXPECT_EQ(adam.states()[2].tensor.shape(), w->value.shape());
    spec.kind = spec::OptimizerKind::sgd;
    Optimizer momentum(rank, all, spec);
    EXPECT_EQ(names(momentum), "momentum_buffer:t momentum_buffer:w ");
    spec.sgd_momentum = 0;
    Optimizer plain(rank, all, spec);
    EXPECT_EQ(names(plain), "");
    spec.kind = spec::OptimizerKind::lion;
    Optimizer lion(rank, all, spec);
    EXPECT_EQ(names(lion), "exp_avg:t exp_avg:w ");
    // On another stage than the table the use has a value and states of its own.
    Optimizer last_stage(rank, std::vector{use.get()}, spec::OptimizerSpec{});
    EXPECT_EQ(names(last_stage), "exp_avg:t exp_avg_sq:t ");
    plain.step(update(1.0, 0.0));
    EXPECT_EQ(plain.num_updates(), 1);
  });
}

TEST(Optimizer, DecayTouchesMatricesOnly) {
  alone([](mesh::Rank& rank) {
    for (const auto kind : {spec::OptimizerKind::adam, spec::OptimizerKind::sgd}) {
      auto matrix = made_parameter(rank.exec, "matrix", 2, 2);
      auto norm = made_parameter(rank.exec, "norm", 3, 0);
      set_values(matrix->value, {1.0F, -2.0F, 4.0F, 0.0F});
      set_values(norm->value, {1.0F, 1.0F, 0.5F});
      spec::OptimizerSpec spec;
      spec.kind = kind;
      Optimizer optimizer(rank, std::vector{matrix.get(), norm.get()}, spec);
      optimizer.step(update(1.0, 0.1));
      EXPECT_EQ(values_of(norm->value), (std::vector<float>{1.0F, 1.0F, 0.5F}));
      const std::vector<float> expected = {0.9F, -1.8F, 3.6F, 0.0F};
      for (int i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(values_of(matrix->value)[i], expected[i]);
    }
  });
}

/// arXiv 2302.06675: the sign of a mixture moves the weight, the moment decays at another rate.
TEST(Optimizer, LionThreeSteps) {
  alone([](mesh::Rank& rank) {
    auto p = made_parameter(rank.exec, "w", 1, 1);
    set_values(p->value, {1.0F});
    spec::OptimizerSpec spec;
    spec.kind = spec::OptimizerKind::lion;
    spec.clip_grad = 0;
    Optimizer optimizer(rank, std::vector{p.get()}, spec);
    double weight = 1.0, m = 0.0;
    for (const double grad : {0.5, -0.25, -0.0001}) {
      set_values(p->main_grad, {static_cast<float>(grad)});
      optimizer.step(update(1e-3, 0.01));
      const double mixed = 0.95 * m + (1 - 0.95) * grad;
      weight -= 1e-3 * ((mixed > 0 ? 1.0 : -1.0) + 0.01 * weight);
      m = 0.98 * m + (1 - 0.98) * grad;
      EXPECT_NEAR(p->value.data<float>()[0], weight, 1e-7);
      EXPECT_NEAR(optimizer.states()[0].tensor.data<float>()[0], m, 1e-8);
    }
    // Third step: the moment, not the small gradient, gives the sign.
    EXPECT_LT(weight, 1.0 - 0.9e-3);
  });
}

TEST(Optimizer, StepWithoutTrainedTokensChangesNothing) {
  alone([](mesh::Rank& rank) {
    auto p = made_parameter(rank.exec, "w", 1, 2);
    set_values(p->value, {1.0F, 2.0F});
    Optimizer optimizer(rank, std::vector{p.get()}, spec::OptimizerSpec{});
    set_values(p->main_grad, {0.5F, 0.25F});
    optimizer.step(update(1e-2, 0.1));
    const std::vector<float> value = values_of(p->value), m = values_of(optimizer.states()[0].tensor);
    const UpdateResult result = optimizer.step(update(1e-2, 0.1, 0.0));
    EXPECT_TRUE(result.skipped);
    EXPECT_EQ(result.first_bad_gradient, "");
    EXPECT_EQ(values_of(p->value), value);
    EXPECT_EQ(values_of(optimizer.states()[0].tensor), m);
    EXPECT_EQ(optimizer.num_updates(), 1);
  });
}

TEST(Optimizer, GradientIsPerTokenAndUnscaled) {
  alone([](mesh::Rank& rank) {
    auto p = made_parameter(rank.exec, "w", 1, 2);
    spec::OptimizerSpec spec;
    spec.kind = spec::OptimizerKind::sgd;
    spec.sgd_momentum = 0;
    spec.clip_grad = 1.0;
    Optimizer optimizer(rank, std::vector{p.get()}, spec);
    optimizer.count_zeros = true;
    set_values(p->main_grad, {48.0F, 0.0F});
    UpdateResult result = optimizer.step({1.0, 0.0, /*token_sum=*/6.0, /*backward_scale=*/16.0});
    EXPECT_DOUBLE_EQ(result.grad_norm, 0.5);
    EXPECT_FALSE(result.clipped);
    EXPECT_EQ(result.num_zeros, 1);
    EXPECT_FLOAT_EQ(p->value.data<float>()[0], -0.5F);
    set_values(p->value, {0.0F, 0.0F});
    result = optimizer.step({1.0, 0.0, /*token_sum=*/0.5, /*backward_scale=*/16.0});
    EXPECT_DOUBLE_EQ(result.grad_norm, 6.0);
    EXPECT_TRUE(result.clipped);
    EXPECT_NEAR(p->value.data<float>()[0], -6.0 / (6.0 + 1e-6), 1e-7);
  });
}

/// A NaN on one rank: no rank touches a weight, and all name the same parameter.
TEST(Optimizer, BadGradientStopsAllRanks) {
  run_mesh(make_parallel(2, 2), [](mesh::Rank& rank) {
    for (int bad = 0; bad < 4; ++bad)
      for (const float value : {kNan, std::numeric_limits<float>::infinity()}) {
        auto first = made_parameter(rank.exec, str_cat("first.", rank.mesh.rank), 1, 2);
        auto second = made_parameter(rank.exec, str_cat("second.", rank.mesh.rank), 1, 2);
        set_values(first->value, {1.0F, 2.0F});
        if (rank.mesh.rank == bad) set_values(second->main_grad, {0.0F, value});
        Optimizer optimizer(rank, std::vector{first.get(), second.get()}, spec::OptimizerSpec{});
        const UpdateResult result = optimizer.step(update(1.0, 0.1));
        EXPECT_TRUE(result.skipped);
        EXPECT_FALSE(std::isfinite(result.grad_norm));
        EXPECT_EQ(result.first_bad_gradient, str_cat("second.", bad));
        EXPECT_EQ(values_of(first->value), (std::vector<float>{1.0F, 2.0F}));
        EXPECT_EQ(optimizer.num_updates(), 0);
      }
  });
}

TEST(GlobalNorm, AddsSquaresOfRanks) {
  run_mesh(make_parallel(2), [](mesh::Rank& rank) {
    auto p = made_parameter(rank.exec, "w", spec::row_shard(2, 2, 2, 1, rank.mesh.rank, 2));
    set_values(p->main_grad, {rank.mesh.rank == 0 ? 2.0F : static_cast<float>(std::sqrt(60.0))});
    EXPECT_NEAR(global_grad_norm(rank, whole_parts(std::vector{p.get()}), false), 8.0, 1e-6);
    auto replica = made_parameter(rank.exec, "n", spec::replicated(1, 1, 1, rank.mesh.rank));
    set_values(replica->main_grad, {6.0F});
    EXPECT_NEAR(global_grad_norm(rank, whole_parts(std::vector{p.get(), replica.get()}), false), 10.0, 1e-6);
    replica->tied_use = true;
    EXPECT_NEAR(global_grad_norm(rank, whole_parts(std::vector{p.get(), replica.get()}), false), 8.0, 1e-6);
  });
}

/// One logical model, cut in many ways: the norm has the same bits.
TEST(GlobalNorm, SameBitsForEveryCut) {
  constexpr std::int64_t kHeads = 8, kGroups = 2, kHeadSize = 8, kHidden = 512, kFfn = 24, kVocab = 61;
  double expected = 0.0;
  for (const int tp : {1, 2, 4, 8}) {
    std::vector<double> norms(static_cast<std::size_t>(tp));
    run_mesh(make_parallel(tp), [&](mesh::Rank& rank) {
      const int r = rank.mesh.tp.rank();
      std::vector<std::unique_ptr<nn::Parameter>> owner;
      const auto add = [&](const char* name, const spec::Sharding& sharding) {
        owner.push_back(made_parameter(rank.exec, name, sharding));
        const std::int64_t salt = std::ssize(owner) * 100000;
        fill_shard(sharding, owner.back()->main_grad, [&](std::int64_t i) { return made_value(salt + i); });
      };
      add("table", spec::row_shard(2, kVocab, 64, kHidden, r, tp));
      add("qkv", spec::qkv_shard(2, kHeads, kGroups, kHeadSize, kHidden, r, tp));
      add("narrow qkv", spec::qkv_shard(2, kHeads, kGroups, kHeadSize, 20, r, tp));
      add("proj", spec::column_shard(30, kHidden, r, tp));
      add("fc1", spec::gated_shard(2, kFfn, 24, r, tp));
      add("bias", spec::row_shard(1, 64 * 8, 64 * 8, 1, r, tp));
      add("norm", spec::replicated(1, 100, 1, r));
      std::vector<nn::Parameter*> all;
      for (const auto& parameter : owner) all.push_back(parameter.get());
      norms[static_cast<std::size_t>(rank.mesh.rank)] = global_grad_norm(rank, whole_parts(all), false);
    });
    if (tp == 1) expected = norms[0];
    for (const double norm : norms) EXPECT_EQ(norm, expected) << "tp " << tp;
  }
  EXPECT_GT(expected, 1.0);
}

TEST(GlobalNorm, OfParameters) {
  alone([](mesh::Rank& rank) {
    auto p = made_parameter(rank.exec, "w", 1, 2);
    set_values(p->value, {3.0F, 4.0F});
    EXPECT_DOUBLE_EQ(global_parameter_norm(rank, whole_parts(std::vector{p.get()}), false), 5.0);
  });
}

/// 50 steps of PyTorch's optimizers on five tensors.
class TorchRuns : public ::testing::TestWithParam<const char*> {};

TEST_P(TorchRuns, SameParametersAndStates) {
  const auto folder = testing::reference_dir() / "golden/optim";
  MEGATRON_REQUIRE_REFERENCE(folder / "optimizers.safetensors");
  const nlohmann::json about = nlohmann::json::parse(std::ifstream(folder / "optimizers.json"));
  const checkpoint::SafetensorsFile file((folder / "optimizers.safetensors").string());
  const std::string run = GetParam();
  const nlohmann::json& settings = about.at("runs").at(run);
  spec::OptimizerSpec spec;
  spec.clip_grad = 0;
  const bool adam = settings.contains("betas");
  spec.kind = adam ? spec::OptimizerKind::adam : spec::OptimizerKind::sgd;
  if (adam) {
    spec.adam_beta1 = settings.at("betas").at(0);
    spec.adam_beta2 = settings.at("betas").at(1);
    spec.adam_eps = settings.at("eps");
  } else {
    spec.sgd_momentum = settings.at("momentum");
    spec.sgd_nesterov = settings.contains("nesterov");
  }
  spec.decoupled_weight_decay = run != "adam_l2";
  // Ten times what float32 itself costs against float64, relative to the largest parameter.
  const double tolerance = 10.0 * settings.at("noise_fp32_vs_fp64_relative_to_largest_param").get<double>();
  const std::vector<double> schedule = file.read_double("lr");
  alone([&](mesh::Rank& rank) {
    const std::vector<std::string> names = {"scalar", "vector", "wide", "square", "experts"};
    std::vector<std::unique_ptr<nn::Parameter>> owner;
    std::vector<nn::Parameter*> all;
    for (const std::string& name : names) {
      const std::vector<float> initial = file.read_float(name + ".initial");
      owner.push_back(made_parameter(rank.exec, name, 1, std::ssize(initial)));
      set_values(owner.back()->value, initial);
      all.push_back(owner.back().get());
    }
    Optimizer optimizer(rank, all, spec);
    for (std::size_t step = 0; step < 50; ++step) {
      for (nn::Parameter* parameter : all) set_golden_grad(*parameter, file, step);
      const double lr = settings.at("lr").is_string() ? schedule[step] : settings.at("lr").get<double>();
      EXPECT_FALSE(optimizer.step(update(lr, settings.at("weight_decay"))).skipped);
      for (const nn::Parameter* parameter : all) {
        const std::vector<float> expected = file.read_float(run + "." + parameter->name + ".params");
        const auto n = static_cast<std::size_t>(parameter->value.numel());
        double largest = 0.0, error = 0.0;
        for (const float e : expected) largest = std::max(largest, std::abs(static_cast<double>(e)));
        for (std::size_t i = 0; i < n; ++i)
          error = std::max(error,
                           std::abs(static_cast<double>(expected[step * n + i]) - parameter->value.data<float>()[i]));
        EXPECT_LE(error, tolerance * largest) << parameter->name << " after step " << step;
      }
    }
    for (const OptimizerState& state : optimizer.states()) {
      const std::vector<float> expected = file.read_float(run + "." + state.range.parameter->name + "." + state.kind);
      double largest = 0.0, error = 0.0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
        error = std::max(error, std::abs(static_cast<double>(expected[i]) - state.tensor.data<float>()[i]));
      }
      EXPECT_LE(error, 1e-5 * largest) << state.kind << " of " << state.range.parameter->name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Golden, TorchRuns,
                         ::testing::Values("adamw", "adamw_no_decay", "adamw_schedule", "adam_l2", "sgd",
                                           "sgd_momentum", "sgd_nesterov"));

/// torch.nn.utils.clip_grad_norm_: with plain SGD at rate 1 from 0 the weights are minus the clipped gradients.
TEST(Clip, Torch) {
  const auto folder = testing::reference_dir() / "golden/optim";
  MEGATRON_REQUIRE_REFERENCE(folder / "clip.safetensors");
  const nlohmann::json about = nlohmann::json::parse(std::ifstream(folder / "clip.json"));
  const checkpoint::SafetensorsFile file((folder / "clip.safetensors").string());
  int compared = 0;
  for (const auto& [name, settings] : about.at("cases").items()) {
    SCOPED_TRACE(name);
    ++compared;
    alone([&, case_name = name, &limits = settings](mesh::Rank& rank) {
      std::vector<std::unique_ptr<nn::Parameter>> owner;
      std::vector<nn::Parameter*> all;
      for (int i = 0; i < 3; ++i) {
        const std::vector<float> in = file.read_float(str_cat(case_name, ".in.", i));
        owner.push_back(made_parameter(rank.exec, "w", 1, std::ssize(in)));
        set_values(owner.back()->main_grad, in);
        all.push_back(owner.back().get());
      }
      const double max_norm = limits.at("max_norm");
      const double norm_in_double = std::stod(limits.at("norm_in_double").get<std::string>());
      spec::OptimizerSpec spec;
      spec.kind = spec::OptimizerKind::sgd;
      spec.sgd_momentum = 0;
      spec.clip_grad = max_norm;
      Optimizer optimizer(rank, all, spec);
      const UpdateResult result = optimizer.step(update(1.0, 0.0));
      if (!std::isfinite(norm_in_double)) {
        // The reference spreads NaN; here nothing is touched.
        EXPECT_TRUE(result.skipped);
        for (const nn::Parameter* parameter : all)
          for (const float v : values_of(parameter->value)) EXPECT_EQ(v, 0.0F);
        return;
      }
      EXPECT_NEAR(result.grad_norm, norm_in_double, 1e-12 * norm_in_double);
      const double coefficient = clip_coefficient(norm_in_double, max_norm);
      EXPECT_EQ(result.clipped, max_norm > 0.0 && coefficient < 1.0);
      for (int i = 0; i < 3; ++i) {
        const std::vector<float> in = file.read_float(str_cat(case_name, ".in.", i));
        const std::vector<float> out = file.read_float(str_cat(case_name, ".out.", i));
        for (std::size_t k = 0; k < out.size(); ++k) {
          const double value = -static_cast<double>(values_of(all[static_cast<std::size_t>(i)]->value)[k]);
          if (max_norm == 0.0) {
            EXPECT_EQ(value, in[k]);  // 0 turns clipping off, as in Megatron
            EXPECT_EQ(in[k] * clip_coefficient(norm_in_double, max_norm), out[k]);
          } else if (case_name == "square_overflows") {
            // The float32 norm of the reference overflows; the norm in double does not.
            EXPECT_NEAR(value, in[k] * coefficient, 2e-7 * std::abs(in[k] * coefficient));
          } else {
            EXPECT_NEAR(value, out[k], 3e-7 * std::abs(out[k]));
          }
        }
      }
    });
  }
  EXPECT_EQ(compared, 14);
}

}  // namespace
}  // namespace megatron::optim
