// Which activations are dropped after the forward pass and computed again in backward (arXiv 1604.06174, 2205.05198
// §5), with Megatron-LM's names.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace megatron::spec {

enum class RecomputeGranularity : std::uint8_t { none, full, selective };
enum class RecomputeMethod : std::uint8_t { uniform, block };

/// Parts of a layer that selective recompute drops.
struct RecomputeModules {
  bool core_attn = false;  // output of attention and its log-sum-exp
  bool layernorm = false;  // outputs of both norms
  bool mlp = false;        // everything between the two linear layers of the MLP
  bool operator==(const RecomputeModules&) const = default;
};

/// Consecutive layers of a stage, counted within it, of which only the input is kept.
struct RecomputeGroup {
  std::int64_t first = 0, count = 0;
};

struct RecomputeSpec {
  RecomputeGranularity granularity = RecomputeGranularity::none;
  RecomputeMethod method = RecomputeMethod::uniform;  // with full
  std::int64_t num_layers = 1;                // with full: of a group (uniform), or how many groups of one (block)
  RecomputeModules modules;                   // with selective
  bool distribute_saved_activations = false;  // with full: each tensor-parallel rank keeps its part of a group's input

  /// What is dropped within layers that stand in no group.
  RecomputeModules active_modules() const {
    return granularity == RecomputeGranularity::selective ? modules : RecomputeModules{};
  }
  /// The groups of a virtual stage of `layers` layers, in order.
  std::vector<RecomputeGroup> groups(std::int64_t layers) const {
    std::vector<RecomputeGroup> result;
    if (granularity != RecomputeGranularity::full) return result;
    const bool uniform = method == RecomputeMethod::uniform;
    const std::int64_t end = uniform ? layers : std::min(num_layers, layers), step = uniform ? num_layers : 1;
    for (std::int64_t first = 0; first < end; first += step) result.push_back({first, std::min(step, end - first)});
    return result;
  }
};

}  // namespace megatron::spec
