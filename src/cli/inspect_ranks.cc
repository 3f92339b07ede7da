// megatron inspect ranks: the groups of every axis.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "cli/inspect.h"
#include "spec/rank_order.h"

namespace megatron::cli {
namespace {

constexpr const char* kAxes[] = {"tp", "cp", "dp", "pp", "dp-cp", "tp-pp", "tp-cp", "tp-dp", "tp-dp-cp"};
constexpr std::size_t kMostGroups = 12, kMostMembers = 16;  // of the printed table

using Groups = std::vector<std::vector<int>>;

std::string group_text(const std::vector<int>& group) {
  std::string text = "[";
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (group.size() > kMostMembers && i >= kMostMembers / 2 && i + 1 < group.size()) {
      if (i == kMostMembers / 2) text += ", ...";
      continue;
    }
    text += (i > 0 ? ", " : "") + std::to_string(group[i]);
  }
  return text + "]";
}

void print_groups(const std::string& axes, const Groups& groups) {
  std::string line;
  for (std::size_t i = 0; i < groups.size() && i < kMostGroups; ++i) line += " " + group_text(groups[i]);
  if (groups.size() > kMostGroups) line += str_cat(" ... ", groups.back().size(), " ranks each");
  std::printf("%-22s %zu x %zu %s\n", axes.c_str(), groups.size(), groups.front().size(), line.c_str());
}

nlohmann::ordered_json to_json(const spec::RankOrder& order) {
  nlohmann::ordered_json json;
  const auto& s = order.sizes();
  json["world_size"] = order.world_size();
  json["sizes"] = {{"tp", s.tp}, {"cp", s.cp}, {"dp", s.dp}, {"pp", s.pp}};
  for (const char* axes : kAxes) json["groups"][axes] = order.groups(axes);
  json["groups"]["embedding"] = order.embedding_groups();
  json["groups"]["position_embedding"] = order.position_embedding_groups();
  for (int rank = 0; rank < order.world_size(); ++rank) {
    const auto at = order.coordinate(rank);
    json["ranks"].push_back({{"rank", rank}, {"tp", at.tp}, {"cp", at.cp}, {"dp", at.dp}, {"pp", at.pp}});
  }
  return json;
}

}  // namespace

int inspect_ranks(const spec::RunSpec& run, bool json) {
  const spec::RankOrder order = spec::dense_order(run.parallel);
  if (json) {
    std::puts(to_json(order).dump().c_str());
    return 0;
  }
  const auto& s = order.sizes();
  std::printf("world size %d = tp %d x cp %d x dp %d x pp %d, order %s\n\ngroups\n", order.world_size(), s.tp, s.cp,
              s.dp, s.pp, run.parallel.use_tp_pp_dp_mapping ? "tp-cp-ep-pp-dp" : "tp-cp-ep-dp-pp");
  for (const char* axes : kAxes) print_groups(axes, order.groups(axes));
  print_groups("embedding", order.embedding_groups());
  print_groups("position_embedding", order.position_embedding_groups());
  std::puts("\n    rank   tp   dp   pp");
  for (int rank = 0; rank < order.world_size(); ++rank) {
    if (order.world_size() > 64 && rank >= 32 && rank + 1 < order.world_size()) continue;
    const auto at = order.coordinate(rank);
    std::printf("%8d %4d %4d %4d\n", rank, at.tp, at.dp, at.pp);
  }
  return 0;
}

}  // namespace megatron::cli
