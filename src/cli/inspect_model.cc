// megatron inspect model: the table of parameters.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "cli/inspect.h"
#include "spec/model_count.h"
#include "spec/parameter_table.h"

namespace megatron::cli {
namespace {

std::string local_shape(const spec::ParameterRow& row) {
  const auto& s = row.sharding;
  return s.num_dims == 1 ? str_cat("[", s.local_rows, "]") : str_cat("[", s.local_rows, ", ", s.local_cols, "]");
}

std::string stages_text(const std::vector<int>& stages) {
  std::string text;
  for (int stage : stages) text += (text.empty() ? "" : ", ") + std::to_string(stage);
  return text;
}

struct Totals {
  std::int64_t logical = 0, rank_0 = 0;
  std::vector<std::int64_t> stages;  // logical parameters held by each stage
};

Totals add_up(const std::vector<spec::ParameterRow>& rows, const spec::StagePlacement& placement) {
  Totals totals;
  totals.stages.resize(static_cast<std::size_t>(placement.num_stages()));
  for (const auto& row : rows) {
    totals.logical += row.numel();
    for (int stage : row.stages) totals.stages[static_cast<std::size_t>(stage)] += row.numel();
    const auto on_rank_0 = [&](int stage) { return placement.rank_of(stage) == 0; };
    if (std::any_of(row.stages.begin(), row.stages.end(), on_rank_0)) totals.rank_0 += row.sharding.local_numel();
  }
  return totals;
}

nlohmann::ordered_json shape_json(int dims, std::int64_t rows, std::int64_t cols) {
  nlohmann::ordered_json shape = {rows};
  if (dims > 1) shape.push_back(cols);
  return shape;
}

nlohmann::ordered_json to_json(const std::vector<spec::ParameterRow>& rows, const Totals& totals) {
  nlohmann::ordered_json json;
  for (const auto& row : rows) {
    const auto& s = row.sharding;
    json["parameters"].push_back({{"name", row.name},
                                  {"shape", shape_json(s.num_dims, s.rows, s.cols)},
                                  {"cut", row.cut},
                                  {"local_shape", shape_json(s.num_dims, s.local_rows, s.local_cols)},
                                  {"stages", row.stages}});
  }
  json["parameters_total"] = totals.logical;
  json["parameters_per_stage"] = totals.stages;
  json["parameters_of_rank_0"] = totals.rank_0;
  return json;
}

}  // namespace

int inspect_model(const spec::RunSpec& run, bool json) {
  const auto rows = spec::parameter_table(run);
  const Totals totals = add_up(rows, run.parallel.placement());
  if (json) {
    std::puts(to_json(rows, totals).dump().c_str());
    return 0;
  }
  std::printf("%-56s %-18s %-18s %-18s %s\n", "parameter", "shape", "cut over tp", "shape of a rank", "stage");
  for (const auto& row : rows)
    std::printf("%-56s %-18s %-18s %-18s %s\n", row.name.c_str(), row.sharding.global_shape_text().c_str(),
                row.cut.c_str(), local_shape(row).c_str(), stages_text(row.stages).c_str());
  std::printf("\nparameters %lld, on rank 0 %lld (padding included)\n", static_cast<long long>(totals.logical),
              static_cast<long long>(totals.rank_0));
  for (std::size_t stage = 0; stage < totals.stages.size(); ++stage)
    std::printf("  stage %zu: %lld in %lld layers\n", stage, static_cast<long long>(totals.stages[stage]),
                static_cast<long long>(run.parallel.layers_per_stage[stage]));
  return 0;
}

}  // namespace megatron::cli
