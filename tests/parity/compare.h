// What the folder owns: the proof that every layout trains the same model. A case is data {model, layout A, layout B,
// level}; both layouts train in process with thread ranks, and this file holds the one comparison that all tests use:
// the fixed list (pairs_test.cc), the pairwise covering set (covering_test.cc), the reports of users
// (user_reports_test.cc), and the mutations that must fail it (mutation_test.cc). Threads against processes:
// worlds_test.cc.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/small_run.h"

namespace megatron::parity {

/// What two layouts promise each other. `bits`: loss, norm and weights are the same numbers (threads, schedules, stage
/// cuts, timing). `close`: they differ by the order of float32 sums.
enum class Level : std::uint8_t { bits, close };

struct Bounds {
  double loss = 1e-5;       // relative, each step
  double grad_norm = 1e-4;  // relative, each step
  double weights = 1e-5;    // rms of the difference ÷ rms of the tensor, each tensor
};

/// Sets to 0 what has the exact gradient 0 and so moves by rounding noise alone: a bias of the keys shifts all scores
/// of a query alike, and the softmax cancels it, unless rotation makes the shift depend on the place.
inline void blank_dead_elements(const spec::ModelSpec& model, const std::string& name, std::vector<float>& values) {
  if (model.position_embedding == spec::PositionEmbedding::rope) return;
  const auto ends_with = [&](const std::string& end) {
    return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
  };
  if (ends_with("k_layernorm.bias")) values.assign(values.size(), 0.0F);
  if (!ends_with("linear_qkv.bias")) return;
  const auto head = static_cast<std::size_t>(model.kv_channels);
  const std::size_t queries = head * static_cast<std::size_t>(model.heads_per_group());
  const std::size_t group = queries + 2 * head;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (i % group >= queries && i % group < queries + head) values[i] = 0.0F;
}

/// One line for each thing that differs by more than the level allows; empty: the layouts agree. A NaN never agrees.
/// `model` is that of both runs.
inline std::vector<std::string> differences(const testing::SmallResult& a, const testing::SmallResult& b,
                                            const spec::ModelSpec& model, Level level, const Bounds& bounds = {}) {
  std::vector<std::string> found;
  const bool bits = level == Level::bits;
  const auto compare = [&](const std::string& what, double x, double y, double bound) {
    const double error = std::abs(x - y), allowed = bits ? 0.0 : bound * std::abs(y);
    if (!(error <= allowed)) found.push_back(str_cat(what, ": ", x, " and ", y, ", off by ", error));
  };
  if (a.steps.size() != b.steps.size() || a.steps.empty())
    found.push_back(str_cat("steps: ", a.steps.size(), " and ", b.steps.size()));
  for (std::size_t i = 0; i < std::min(a.steps.size(), b.steps.size()); ++i) {
    const train::StepReport& x = a.steps[i];
    const train::StepReport& y = b.steps[i];
    compare(str_cat("loss of step ", i + 1), x.loss, y.loss, bounds.loss);
    compare(str_cat("gradient norm of step ", i + 1), x.grad_norm, y.grad_norm, bounds.grad_norm);
    if (x.token_sum != y.token_sum || x.trained_tokens != y.trained_tokens)
      found.push_back(str_cat("tokens of step ", i + 1, ": ", x.trained_tokens, " and ", y.trained_tokens));
  }
  if (a.weights.size() != b.weights.size() || a.weights.empty())
    found.push_back(str_cat("tensors: ", a.weights.size(), " and ", b.weights.size()));
  for (const auto& [name, values] : a.weights) {
    const auto other = b.weights.find(name);
    if (other == b.weights.end()) {
      found.push_back(str_cat(name, " is missing"));
    } else if (bits) {
      if (values != other->second) found.push_back(str_cat(name, ": the bits differ"));
    } else {
      std::vector<float> x = values, y = other->second;
      blank_dead_elements(model, name, x);
      blank_dead_elements(model, name, y);
      const double rms = x.size() == y.size() ? testing::relative_rms(x, y) : INFINITY;
      if (!(rms <= bounds.weights)) found.push_back(str_cat(name, ": relative rms of the difference ", rms));
    }
  }
  return found;
}

/// All lines in one text, for a message.
inline std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace megatron::parity
