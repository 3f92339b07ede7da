#include "optim/muon.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/float16.h"
#include "checkpoint/safetensors.h"
#include "made_parameter.h"
#include "optim/newton_schulz.h"
#include "optim/optimizer.h"
#include "support/reference_data.h"
#include "support/run_ranks.h"

namespace megatron::optim {
namespace {

using testing::make_parallel;
using testing::run_mesh;

void alone(const std::function<void(mesh::Rank&)>& fn) { run_mesh(make_parallel(1), fn); }

/// A strong diagonal keeps singular values away from 0, where the iteration would blow up rounding.
float matrix_value(std::int64_t row, std::int64_t col, std::int64_t cols) {
  return made_value(row * cols + col) + (row == col ? 20.0F : 0.0F);
}

template <typename T>
Tensor made_matrix(kernels::Executor& exec, std::int64_t rows, std::int64_t cols, bool transposed = false) {
  Tensor x = exec.empty(Shape{rows, cols}, std::is_same_v<T, float> ? DType::float32 : DType::float64);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      x.data<T>()[r * cols + c] = static_cast<T>(transposed ? matrix_value(c, r, rows) : matrix_value(r, c, cols));
  return x;
}

/// The iteration written down as loops over doubles.
std::vector<double> iterated(std::vector<double> x, std::size_t rows, std::size_t cols,
                             std::span<const NewtonSchulzStep> steps, std::size_t count) {
  double norm = 0;
  for (const double v : x) norm += v * v;
  for (double& v : x) v /= std::max(std::sqrt(norm), 1e-7);
  for (std::size_t i = 0; i < count; ++i) {
    const NewtonSchulzStep& s = steps[i % steps.size()];
    std::vector<double> gram(rows * rows), factor(rows * rows), next(rows * cols);
    for (std::size_t a = 0; a < rows; ++a)
      for (std::size_t b = 0; b < rows; ++b)
        for (std::size_t k = 0; k < cols; ++k) gram[a * rows + b] += x[a * cols + k] * x[b * cols + k];
    for (std::size_t a = 0; a < rows; ++a)
      for (std::size_t b = 0; b < rows; ++b) {
        double square = 0;
        for (std::size_t k = 0; k < rows; ++k) square += gram[a * rows + k] * gram[k * rows + b];
        factor[a * rows + b] = s.b * gram[a * rows + b] + s.c * square;
      }
    for (std::size_t a = 0; a < rows; ++a)
      for (std::size_t c = 0; c < cols; ++c) {
        next[a * cols + c] = s.a * x[a * cols + c];
        for (std::size_t k = 0; k < rows; ++k) next[a * cols + c] += factor[a * rows + k] * x[k * cols + c];
      }
    x = next;
  }
  return x;
}

constexpr spec::MuonCoefficients kSets[] = {spec::MuonCoefficients::simple, spec::MuonCoefficients::quintic,
                                            spec::MuonCoefficients::polar_express, spec::MuonCoefficients::aol};

TEST(NewtonSchulz, AgreesWithTheFormula) {
  alone([](mesh::Rank& rank) {
    for (const spec::MuonCoefficients set : kSets)
      for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{8, 24}, {7, 13}, {12, 12}}) {
        const auto steps = newton_schulz_steps(set);
        const std::int64_t count = steps.size() == 1 ? 6 : std::ssize(steps);
        std::vector<double> start;
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < cols; ++c) start.push_back(static_cast<double>(matrix_value(r, c, cols)));
        const std::vector<double> expected =
            iterated(start, static_cast<std::size_t>(rows), static_cast<std::size_t>(cols), steps,
                     static_cast<std::size_t>(count));
        const Tensor oracle = newton_schulz(rank.exec, made_matrix<double>(rank.exec, rows, cols), steps, count);
        const Tensor single = newton_schulz(rank.exec, made_matrix<float>(rank.exec, rows, cols), steps, count);
        double squares = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(oracle.data<double>()[i], expected[i], 1e-10);
          EXPECT_NEAR(static_cast<double>(single.data<float>()[i]), expected[i], 1e-5);
          squares += expected[i] * expected[i];
        }
        // Singular values near 1. (Those of the other matrices need more steps; aol expects another scaling before.)
        if (rows == 8 && set != spec::MuonCoefficients::aol) {
          EXPECT_NEAR(squares, static_cast<double>(rows), 0.4 * static_cast<double>(rows)) << static_cast<int>(set);
        }
      }
  });
}

TEST(NewtonSchulz, ATallMatrixHasTheBitsOfItsTranspose) {
  alone([](mesh::Rank& rank) {
    const auto steps = newton_schulz_steps(spec::MuonCoefficients::quintic);
    const Tensor wide = newton_schulz(rank.exec, made_matrix<float>(rank.exec, 9, 40), steps, 5);
    const Tensor tall = newton_schulz(rank.exec, made_matrix<float>(rank.exec, 40, 9, true), steps, 5);
    // The norm's segments are counted along memory, so the starting scale may differ in the last place.
    for (std::int64_t r = 0; r < 9; ++r)
      for (std::int64_t c = 0; c < 40; ++c)
        EXPECT_NEAR(wide.data<float>()[r * 40 + c], tall.data<float>()[c * 9 + r], 1e-6);
  });
}

TEST(NewtonSchulz, SharedWorkHasTheBitsOfOneRank) {
  const auto steps = newton_schulz_steps(spec::MuonCoefficients::quintic);
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{8, 24}, {25, 7}, {2, 5}, {500, 3}}) {
    std::vector<float> expected;
    alone([&, r = rows, c = cols](mesh::Rank& rank) {
      expected = values_of(newton_schulz(rank.exec, made_matrix<float>(rank.exec, r, c), steps, 5));
    });
    run_mesh(make_parallel(3), [&, r = rows, c = cols](mesh::Rank& rank) {
      const Tensor got = newton_schulz(rank.exec, made_matrix<float>(rank.exec, r, c), steps, 5, &rank.mesh.tp);
      EXPECT_EQ(values_of(got), expected);
    });
  }
}

TEST(NewtonSchulz, ZeroStaysZero) {
  alone([](mesh::Rank& rank) {
    const Tensor got = newton_schulz(rank.exec, rank.exec.zeros(Shape{3, 4}, DType::float32),
                                     newton_schulz_steps(spec::MuonCoefficients::quintic), 5);
    for (const float v : values_of(got)) EXPECT_EQ(v, 0.0F);
  });
}

TEST(Muon, ScaleFactors) {
  EXPECT_DOUBLE_EQ(muon_scale(spec::MuonScaleMode::spectral, 4, 9), 3.0);
  EXPECT_DOUBLE_EQ(muon_scale(spec::MuonScaleMode::unit_rms_norm, 4, 16), 0.5);
  EXPECT_DOUBLE_EQ(muon_scale(spec::MuonScaleMode::shape_scaling, 4, 16), 1.0);
  EXPECT_DOUBLE_EQ(muon_scale(spec::MuonScaleMode::shape_scaling, 16, 4), 2.0);
}

spec::OptimizerSpec muon_spec() {
  spec::OptimizerSpec spec;
  spec.kind = spec::OptimizerKind::muon;
  spec.clip_grad = 0;
  return spec;
}

TEST(Muon, TakesTheMatricesOfLayers) {
  alone([](mesh::Rank& rank) {
    auto table = made_parameter(rank.exec, "embedding.word_embeddings.weight", 4, 2);
    auto positions = made_parameter(rank.exec, "embedding.position_embeddings.weight", 4, 2);
    auto matrix = made_parameter(rank.exec, "decoder.layers.0.mlp.linear_fc1.weight", 4, 2);
    auto bias = made_parameter(rank.exec, "decoder.layers.0.mlp.linear_fc1.bias", 4, 0);
    auto head = made_parameter(rank.exec, "output_layer.weight", 4, 2);
    const std::vector<nn::Parameter*> all = {table.get(), positions.get(), matrix.get(), bias.get(), head.get()};
    const auto kinds = [&](spec::OptimizerKind scalar) {
      spec::OptimizerSpec spec = muon_spec();
      spec.muon.scalar_optimizer = scalar;
      Optimizer optimizer(rank, all, spec);
      std::string text;
      for (const OptimizerState& state : optimizer.states()) text += state.kind + " ";
      return text;
    };
    EXPECT_EQ(kinds(spec::OptimizerKind::adam),
              "exp_avg exp_avg_sq exp_avg exp_avg_sq momentum_buffer exp_avg exp_avg_sq exp_avg exp_avg_sq ");
    EXPECT_EQ(kinds(spec::OptimizerKind::lion), "exp_avg exp_avg momentum_buffer exp_avg exp_avg ");
  });
}

/// 50 steps of the formula, written with PyTorch in float32.
class TorchMuon : public ::testing::TestWithParam<const char*> {};

TEST_P(TorchMuon, SameParametersAndBuffers) {
  const auto folder = testing::reference_dir() / "golden/optim";
  MEGATRON_REQUIRE_REFERENCE(folder / "muon.safetensors");
  const nlohmann::json about = nlohmann::json::parse(std::ifstream(folder / "optimizers.json"));
  const checkpoint::SafetensorsFile file((folder / "muon.safetensors").string());
  const std::string run = GetParam();
  const nlohmann::json& settings = about.at("muon_runs").at(run);
  spec::OptimizerSpec spec = muon_spec();
  spec.muon.momentum = settings.at("momentum");
  spec.muon.nesterov = settings.at("nesterov");
  spec.muon.coefficients = spec::MuonCoefficients::simple;
  spec.muon.num_ns_steps = settings.at("ns_steps");
  if (settings.at("lr_scale") == "original") {
    spec.muon.scale_mode = spec::MuonScaleMode::shape_scaling;
  } else {
    spec.muon.scale_mode = spec::MuonScaleMode::spectral;
    spec.muon.extra_scale_factor = 0.2;
  }
  const double tolerance = 10.0 * settings.at("max_abs_float32_iteration_vs_float64").get<double>();
  const std::vector<double> schedule = file.read_double("lr");
  alone([&](mesh::Rank& rank) {
    const std::vector<std::pair<std::string, std::array<std::int64_t, 2>>> shapes = {
        {"wide", {8, 24}}, {"tall", {24, 8}}, {"square", {12, 12}}, {"odd", {7, 13}}};
    std::vector<std::unique_ptr<nn::Parameter>> owner;
    std::vector<nn::Parameter*> all;
    for (const auto& [name, shape] : shapes) {
      owner.push_back(made_parameter(rank.exec, name, shape[0], shape[1]));
      set_values(owner.back()->value, file.read_float(name + ".initial"));
      all.push_back(owner.back().get());
    }
    Optimizer optimizer(rank, all, spec);
    for (std::size_t step = 0; step < 50; ++step) {
      for (nn::Parameter* parameter : all) set_golden_grad(*parameter, file, step);
      const double lr = settings.at("lr").is_string() ? schedule[step] : settings.at("lr").get<double>();
      EXPECT_FALSE(optimizer.step({lr, settings.at("weight_decay"), 1.0, 1.0}).skipped);
      for (const nn::Parameter* parameter : all) {
        const std::vector<float> expected = file.read_float(run + "." + parameter->name + ".params_float32_iteration");
        const auto n = static_cast<std::size_t>(parameter->value.numel());
        double error = 0;
        for (std::size_t i = 0; i < n; ++i)
          error = std::max(error,
                           std::abs(static_cast<double>(expected[step * n + i]) - parameter->value.data<float>()[i]));
        EXPECT_LE(error, tolerance) << parameter->name << " after step " << step;
      }
    }
    for (const OptimizerState& state : optimizer.states()) {
      const std::vector<float> expected = file.read_float(run + "." + state.range.parameter->name + "." + state.kind);
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(state.tensor.data<float>()[i], expected[i], 1e-5) << state.range.parameter->name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Golden, TorchMuon, ::testing::Values("muon", "muon_plain", "muon_rms"));

constexpr std::int64_t kHeads = 8, kHeadSize = 2, kHidden = 24;

/// Two steps on shards of one logical model; the shards of all ranks put together.
struct TrainedModel {
  std::map<std::string, std::vector<float>> weights;
  std::mutex mutex;
};

void train_shards(int tp, std::int64_t groups, const spec::OptimizerSpec& spec, TrainedModel& model) {
  run_mesh(make_parallel(tp), [&](mesh::Rank& rank) {
    const int r = rank.mesh.tp.rank();
    std::vector<std::unique_ptr<nn::Parameter>> owner;
    std::vector<nn::Parameter*> all;
    const auto add = [&](const char* name, const spec::Sharding& sharding) {
      owner.push_back(made_parameter(rank.exec, name, sharding));
      const std::int64_t salt = std::ssize(owner) * 100000;
      fill_shard(sharding, owner.back()->value, [&](std::int64_t i) { return made_value(salt + i); });
      all.push_back(owner.back().get());
    };
    add("qkv", spec::qkv_shard(2, kHeads, groups, kHeadSize, kHidden, r, tp));
    all.back()->group_rows = {kHeads / groups * kHeadSize, kHeadSize, kHeadSize};
    add("proj", spec::column_shard(kHidden, kHeads * kHeadSize, r, tp));
    add("fc1", spec::gated_shard(2, 16, kHidden, r, tp));
    add("fc2", spec::column_shard(kHidden, 16, r, tp));
    add("bias", spec::row_shard(1, 16, 16, 1, r, tp));
    Optimizer optimizer(rank, all, spec);
    for (std::int64_t step = 0; step < 2; ++step) {
      for (std::size_t p = 0; p < all.size(); ++p)
        fill_shard(all[p]->sharding, all[p]->main_grad,
                   [&](std::int64_t i) { return made_value(7 * i + 1000 * static_cast<std::int64_t>(p) + step); });
      optimizer.step({0.02, 0.1, 4.0, 1.0});
    }
    const std::lock_guard<std::mutex> lock(model.mutex);
    for (const nn::Parameter* parameter : all) {
      std::vector<float>& whole = model.weights[parameter->name];
      whole.resize(static_cast<std::size_t>(parameter->sharding.numel()));
      for (const spec::Piece& piece : parameter->sharding.pieces)
        for (std::int64_t row = 0; row < piece.global.rows; ++row)
          for (std::int64_t col = 0; col < piece.global.cols; ++col) {
            const auto at =
                static_cast<std::size_t>((piece.global.row + row) * parameter->sharding.cols + piece.global.col + col);
            const float value =
                parameter->value.data<float>()[(piece.local_row + row) * parameter->sharding.local_cols + col];
            if (!piece.owned && whole[at] != 0.0F) {
              EXPECT_EQ(value, whole[at]) << parameter->name;
            }
            whole[at] = value;
          }
    }
  });
}

TEST(Muon, CutMatricesHaveTheBitsOfWholeOnes) {
  for (const std::int64_t groups : {std::int64_t{2}, std::int64_t{8}})
    for (const bool split : {true, false}) {
      spec::OptimizerSpec spec = muon_spec();
      spec.muon.split_qkv = split;
      spec.muon.nesterov = groups == 2;
      TrainedModel whole;
      train_shards(1, groups, spec, whole);
      for (const int tp : {2, 4})
        for (const auto mode : {spec::MuonTpMode::duplicated, spec::MuonTpMode::distributed}) {
          spec.muon.tp_mode = mode;
          TrainedModel cut;
          train_shards(tp, groups, spec, cut);
          for (const auto& [name, values] : whole.weights)
            EXPECT_EQ(cut.weights[name], values) << name << " of " << groups << " groups, tp " << tp;
        }
    }
}

TEST(Muon, BlockwiseTakesEachPartByItself) {
  spec::OptimizerSpec spec = muon_spec();
  spec.muon.tp_mode = spec::MuonTpMode::blockwise;
  TrainedModel whole, cut;
  train_shards(1, 8, spec, whole);
  train_shards(2, 8, spec, cut);
  EXPECT_EQ(cut.weights["bias"], whole.weights["bias"]);
  EXPECT_NE(cut.weights["proj"], whole.weights["proj"]);
}

/// Without memory the same work is counted as with it, on every rank and in every mode.
TEST(Muon, MetaCountsTheSameWork) {
  for (const auto mode : {spec::MuonTpMode::blockwise, spec::MuonTpMode::duplicated, spec::MuonTpMode::distributed}) {
    spec::OptimizerSpec spec = muon_spec();
    spec.muon.tp_mode = mode;
    const auto step = [&](mesh::Rank& rank) {
      auto qkv =
          made_parameter(rank.exec, "qkv", spec::qkv_shard(2, kHeads, 2, kHeadSize, kHidden, rank.mesh.tp.rank(), 2));
      qkv->group_rows = {kHeads / 2 * kHeadSize, kHeadSize, kHeadSize};
      auto proj =
          made_parameter(rank.exec, "proj", spec::column_shard(kHidden, kHeads * kHeadSize, rank.mesh.tp.rank(), 2));
      Optimizer optimizer(rank, std::vector{qkv.get(), proj.get()}, spec);
      const kernels::WorkCounters before = rank.exec.counters();
      optimizer.step({0.1, 0.0, 1.0, 1.0});
      return rank.exec.counters().matmul_flops - before.matmul_flops;
    };
    std::int64_t real[2] = {}, meta[2] = {};
    run_mesh(make_parallel(2), [&](mesh::Rank& rank) { real[rank.mesh.rank] = step(rank); });
    for (int r = 0; r < 2; ++r) testing::run_meta(make_parallel(2), r, [&](mesh::Rank& rank) { meta[r] = step(rank); });
    EXPECT_EQ(real[0], meta[0]);
    EXPECT_EQ(real[1], meta[1]);
    // Five steps of 2·(2·R²·C + R³) on matrices of 16, 4, 4 rows and of 16 columns.
    const std::int64_t whole =
        5 * 2 * (2 * 16 * 16 * 24 + 16 * 16 * 16 + 2 * (2 * 4 * 4 * 24 + 4 * 4 * 4) + 2 * 16 * 16 * 24 + 16 * 16 * 16);
    if (mode == spec::MuonTpMode::duplicated) {
      EXPECT_EQ(real[0], whole);
    }
    if (mode == spec::MuonTpMode::distributed) {
      EXPECT_EQ(real[0] + real[1], whole);
    }
  }
}

/// The 16-bit copy beside float32 weights is written with them.
TEST(Muon, WritesTheRoundedCopy) {
  alone([](mesh::Rank& rank) {
    auto p = made_parameter(rank.exec, "w", 6, 4);
    for (std::int64_t i = 0; i < 24; ++i) p->main_grad.data<float>()[i] = made_value(i);
    Muon muon(rank, muon_spec(), std::vector{p.get()});
    Tensor momentum = rank.exec.zeros(p->value.shape(), DType::float32);
    const Tensor rounded = rank.exec.zeros(p->value.shape(), DType::bfloat16);
    muon.update(*p, {0.1, 0.0, 1.0, 1}, p->value, p->main_grad, momentum, rounded);
    for (std::int64_t i = 0; i < 24; ++i) {
      EXPECT_NE(p->value.data<float>()[i], 0.0F);
      EXPECT_EQ(rounded.data<BFloat16>()[i].bits, BFloat16(p->value.data<float>()[i]).bits);
    }
  });
}

/// Queries, keys and values apart are three small problems; together they are one.
TEST(Muon, SplitsQueriesKeysAndValues) {
  spec::OptimizerSpec spec = muon_spec();
  TrainedModel split, joined;
  train_shards(1, 2, spec, split);
  spec.muon.split_qkv = false;
  train_shards(1, 2, spec, joined);
  EXPECT_NE(split.weights["qkv"], joined.weights["qkv"]);
  EXPECT_EQ(split.weights["proj"], joined.weights["proj"]);
  // The first step by hand, from the rows of the keys: rows 8, 9 and 20, 21 of two groups of [8 | 2 | 2].
  alone([&](mesh::Rank& rank) {
    auto keys = made_parameter(rank.exec, "keys", 4, kHidden);
    auto all = made_parameter(rank.exec, "qkv", spec::qkv_shard(2, kHeads, 2, kHeadSize, kHidden, 0, 1));
    all->group_rows = {8, 2, 2};
    const std::int64_t rows[] = {8, 9, 20, 21};
    for (std::int64_t i = 0; i < all->value.numel(); ++i) all->main_grad.data<float>()[i] = made_value(i);
    for (std::int64_t r = 0; r < 4; ++r)
      for (std::int64_t c = 0; c < kHidden; ++c)
        keys->main_grad.data<float>()[r * kHidden + c] = made_value(rows[r] * kHidden + c);
    spec::OptimizerSpec apart = muon_spec();
    Optimizer optimizer(rank, std::vector{keys.get(), all.get()}, apart);
    optimizer.step({0.1, 0.0, 1.0, 1.0});
    for (std::int64_t r = 0; r < 4; ++r)
      for (std::int64_t c = 0; c < kHidden; ++c)
        EXPECT_EQ(all->value.data<float>()[rows[r] * kHidden + c], keys->value.data<float>()[r * kHidden + c]);
  });
}

}  // namespace
}  // namespace megatron::optim
