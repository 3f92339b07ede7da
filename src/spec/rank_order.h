// Which rank stands where: the map between a global rank and its coordinate on the axes, in Megatron-LM's order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spec/parallel_spec.h"

namespace megatron::spec {

enum class Axis : std::uint8_t { tp, cp, ep, dp, pp };
inline constexpr int kNumAxes = 5;
inline constexpr std::string_view kDefaultOrder = "tp-cp-ep-dp-pp";
inline constexpr std::string_view kPipelineBeforeDataOrder = "tp-cp-ep-pp-dp";  // --use-tp-pp-dp-mapping

/// "tp", "cp", "ep", "dp", "pp"
std::string_view axis_name(Axis axis);

/// One number per axis: sizes of a mesh, or the place of a rank in it.
struct AxisValues {
  int tp = 0, cp = 0, ep = 0, dp = 0, pp = 0;
  int& operator[](Axis axis);
  int operator[](Axis axis) const;
  bool operator==(const AxisValues&) const = default;
};

/// Ranks 0 … product of the sizes − 1 laid over the axes; the leftmost axis of the order varies fastest.
class RankOrder {
 public:
  /// Axes missing from `order` must have size 1. cp and ep above 1 in one order are refused: the dense order has cp,
  /// the expert order has ep. Throws ConfigError. `offset` is added to every rank.
  RankOrder(std::string_view order, const AxisValues& sizes, int offset = 0);

  int world_size() const { return world_size_; }
  const AxisValues& sizes() const { return sizes_; }
  AxisValues coordinate(int rank) const;
  int rank(const AxisValues& coordinate) const;

  /// All groups along `axes` ("tp", "dp-cp", …): the other axes vary outside, fastest first; members in axis order.
  std::vector<std::vector<int>> groups(std::string_view axes) const;
  /// The group of groups(axes) that holds `rank`.
  std::vector<int> group_of(int rank, std::string_view axes) const;
  /// First and last stage of each pipeline (one member if there is one stage): the ranks that hold the word embedding.
  std::vector<std::vector<int>> embedding_groups() const;
  /// First stage of each pipeline.
  std::vector<std::vector<int>> position_embedding_groups() const;

 private:
  std::vector<Axis> parse(std::string_view axes) const;

  std::vector<Axis> order_;
  AxisValues sizes_;
  AxisValues strides_;
  int offset_ = 0;
  int world_size_ = 1;
};

/// The dense order of a run: tp, cp, dp, pp with ep = 1. `parallel.data_parallel` must be derived.
RankOrder dense_order(const ParallelSpec& parallel);
/// The order of the experts: tp = `expert_tensor_parallel`, ep, dp = world ÷ (etp·ep·pp), pp with cp = 1.
/// Throws ConfigError where the product does not fit, or the pipelines of both orders would differ.
RankOrder expert_order(const ParallelSpec& parallel, int expert_tensor_parallel);

}  // namespace megatron::spec
