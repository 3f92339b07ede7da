#include "spec/rank_order.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace megatron::spec {
namespace {

constexpr std::array<Axis, kNumAxes> kAxes = {Axis::tp, Axis::cp, Axis::ep, Axis::dp, Axis::pp};

Axis axis_of(std::string_view name) {
  for (Axis axis : kAxes)
    if (axis_name(axis) == name) return axis;
  throw ConfigError(str_cat("rank order: \"", name, "\" is no axis; known: tp, cp, ep, dp, pp"));
}

std::vector<Axis> split_axes(std::string_view text) {
  std::vector<Axis> axes;
  while (true) {
    const auto dash = text.find('-');
    const Axis axis = axis_of(text.substr(0, dash));
    if (std::find(axes.begin(), axes.end(), axis) != axes.end())
      throw ConfigError(str_cat("rank order: axis ", axis_name(axis), " is named twice"));
    axes.push_back(axis);
    if (dash == std::string_view::npos) return axes;
    text.remove_prefix(dash + 1);
  }
}

}  // namespace

std::string_view axis_name(Axis axis) {
  switch (axis) {
    case Axis::tp:
      return "tp";
    case Axis::cp:
      return "cp";
    case Axis::ep:
      return "ep";
    case Axis::dp:
      return "dp";
    case Axis::pp:
      return "pp";
  }
  return "?";
}

int& AxisValues::operator[](Axis axis) {
  switch (axis) {
    case Axis::tp:
      return tp;
    case Axis::cp:
      return cp;
    case Axis::ep:
      return ep;
    case Axis::dp:
      return dp;
    case Axis::pp:
      break;
  }
  return pp;
}

int AxisValues::operator[](Axis axis) const { return const_cast<AxisValues&>(*this)[axis]; }

RankOrder::RankOrder(std::string_view order, const AxisValues& sizes, int offset)
    : order_(split_axes(order)), sizes_(sizes), offset_(offset) {
  if (sizes.cp > 1 && sizes.ep > 1)
    throw ConfigError(str_cat("one rank order cannot hold cp ", sizes.cp, " and ep ", sizes.ep,
                              ": cp belongs to the dense order, ep to the expert order"));
  for (Axis axis : kAxes) {
    if (sizes[axis] < 1) throw ConfigError(str_cat("axis ", axis_name(axis), " has size ", sizes[axis]));
    if (std::find(order_.begin(), order_.end(), axis) != order_.end()) continue;
    if (sizes[axis] != 1)
      throw ConfigError(
          str_cat("axis ", axis_name(axis), " has size ", sizes[axis], " but the order ", order, " does not name it"));
    order_.push_back(axis);
  }
  for (Axis axis : order_) {
    strides_[axis] = world_size_;
    world_size_ *= sizes_[axis];
  }
}

AxisValues RankOrder::coordinate(int rank) const {
  rank -= offset_;
  MEGATRON_CHECK(rank >= 0 && rank < world_size_, "rank ", rank, " in a world of ", world_size_);
  AxisValues at;
  for (Axis axis : order_) at[axis] = rank / strides_[axis] % sizes_[axis];
  return at;
}

int RankOrder::rank(const AxisValues& coordinate) const {
  int rank = offset_;
  for (Axis axis : order_) {
    MEGATRON_CHECK(coordinate[axis] >= 0 && coordinate[axis] < sizes_[axis], "coordinate ", coordinate[axis],
                   " on axis ", axis_name(axis));
    rank += coordinate[axis] * strides_[axis];
  }
  return rank;
}

std::vector<Axis> RankOrder::parse(std::string_view axes) const {
  const std::vector<Axis> named = split_axes(axes);
  std::vector<Axis> in_order;
  for (Axis axis : order_)
    if (std::find(named.begin(), named.end(), axis) != named.end()) in_order.push_back(axis);
  return in_order;
}

std::vector<std::vector<int>> RankOrder::groups(std::string_view axes) const {
  const std::vector<Axis> inside = parse(axes);
  std::vector<Axis> outside;
  for (Axis axis : order_)
    if (std::find(inside.begin(), inside.end(), axis) == inside.end()) outside.push_back(axis);
  auto offsets = [this](const std::vector<Axis>& along) {
    std::vector<int> list = {0};
    for (Axis axis : along) {
      const std::size_t before = list.size();
      for (int k = 1; k < sizes_[axis]; ++k)
        for (std::size_t i = 0; i < before; ++i) list.push_back(list[i] + k * strides_[axis]);
    }
    return list;
  };
  const std::vector<int> members = offsets(inside);
  std::vector<std::vector<int>> all;
  for (int start : offsets(outside)) {
    std::vector<int> group;
    for (int member : members) group.push_back(offset_ + start + member);
    all.push_back(std::move(group));
  }
  return all;
}

std::vector<int> RankOrder::group_of(int rank, std::string_view axes) const {
  AxisValues base = coordinate(rank);
  const std::vector<Axis> inside = parse(axes);
  for (Axis axis : inside) base[axis] = 0;
  std::vector<int> list = {this->rank(base)};
  for (Axis axis : inside) {
    const std::size_t before = list.size();
    for (int k = 1; k < sizes_[axis]; ++k)
      for (std::size_t i = 0; i < before; ++i) list.push_back(list[i] + k * strides_[axis]);
  }
  return list;
}

std::vector<std::vector<int>> RankOrder::embedding_groups() const {
  std::vector<std::vector<int>> all = groups("pp");
  for (auto& group : all) group = group.size() == 1 ? group : std::vector<int>{group.front(), group.back()};
  return all;
}

std::vector<std::vector<int>> RankOrder::position_embedding_groups() const {
  std::vector<std::vector<int>> all = groups("pp");
  for (auto& group : all) group.resize(1);
  return all;
}

RankOrder dense_order(const ParallelSpec& parallel) {
  return RankOrder(
      parallel.use_tp_pp_dp_mapping ? kPipelineBeforeDataOrder : kDefaultOrder,
      {parallel.tensor_parallel, parallel.context_parallel, 1, parallel.data_parallel, parallel.pipeline_parallel});
}

RankOrder expert_order(const ParallelSpec& parallel, int expert_tensor_parallel) {
  const int product = expert_tensor_parallel * parallel.expert_parallel * parallel.pipeline_parallel;
  if (parallel.world_size % product != 0)
    throw ConfigError(str_cat("world size ", parallel.world_size, " not divisible by expert tensor ",
                              expert_tensor_parallel, " x expert ", parallel.expert_parallel, " x pipeline ",
                              parallel.pipeline_parallel, " = ", product));
  RankOrder order(
      parallel.use_tp_pp_dp_mapping ? kPipelineBeforeDataOrder : kDefaultOrder,
      {expert_tensor_parallel, 1, parallel.expert_parallel, parallel.world_size / product, parallel.pipeline_parallel});
  if (order.groups("pp") != dense_order(parallel).groups("pp"))
    throw ConfigError(
        "the pipelines of dense and expert layers differ: with pp before dp in the rank order the data "
        "parallel sizes of both must be equal");
  return order;
}

}  // namespace megatron::spec
