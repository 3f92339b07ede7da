#include "spec/flat_plan.h"

#include <algorithm>
#include <numeric>

#include "spec/parameter_table.h"

namespace megatron::spec {
namespace {

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}
bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }
bool is_table_or_head(const std::string& name) {
  return name.rfind("embedding.", 0) == 0 || name.rfind("output_layer.", 0) == 0;
}

HeldParameter::Sum sum_of(const RunSpec& run, const std::string& name) {
  const ParallelSpec& p = run.parallel;
  if (p.tensor_parallel == 1) return HeldParameter::Sum::none;
  if (contains(name, "linear_qkv"))
    return run.model.num_query_groups < p.tensor_parallel ? HeldParameter::Sum::shared_rows : HeldParameter::Sum::none;
  if (contains(name, "q_layernorm") || contains(name, "k_layernorm")) return HeldParameter::Sum::whole;
  const bool sees_some_tokens = contains(name, "layernorm") || contains(name, "position_embeddings") ||
                                ends_with(name, "linear_proj.bias") || ends_with(name, "linear_fc2.bias");
  return p.sequence_parallel && sees_some_tokens ? HeldParameter::Sum::whole : HeldParameter::Sum::none;
}

class Held {
 public:
  explicit Held(const RunSpec& run) : run_(run) {}

  std::vector<HeldParameter> of(int pipeline_rank) {
    const StagePlacement placement = run_.parallel.placement();
    const std::vector<std::int64_t>& layers = run_.parallel.layers_per_stage;
    std::int64_t first_layer = 0;
    int counted = 0;  // stages in first_layer
    for (int chunk = 0; chunk < placement.num_chunks; ++chunk) {
      const int stage = placement.stage_of(pipeline_rank, chunk);  // ascending
      first_layer = std::accumulate(layers.begin() + counted, layers.begin() + stage, first_layer);
      counted = stage;
      add_stage(stage, first_layer);
    }
    return std::move(held_);
  }

 private:
  void add_stage(int stage, std::int64_t first_layer) {
    const bool last = stage + 1 == run_.parallel.placement().num_stages();
    const ParameterRow* tied = nullptr;
    std::string unit;
    const std::vector<ParameterRow> rows = stage_parameters(run_, stage, first_layer);
    for (const ParameterRow& row : rows) {
      const bool word = row.name == "embedding.word_embeddings.weight";
      if (word && run_.model.tied() && last) tied = &row;
      if (word && stage != 0) continue;
      // "embedding", "decoder.layers.3", "decoder.final_layernorm", "output_layer"
      const std::size_t dots =
          row.name.rfind("decoder.layers.", 0) == 0 ? row.name.find('.', 15) : row.name.find('.', 8);
      const std::string of_row = row.name.substr(0, dots);
      if (of_row != unit) ++unit_;
      unit = of_row;
      add(row, stage);
      held_.back().shared_embedding = word && run_.model.tied();
      has_table_ = has_table_ || held_.back().shared_embedding;
    }
    if (tied == nullptr) return;
    ++unit_;
    add(*tied, stage);
    held_.back().tied_use = true;
    held_.back().shares_memory = has_table_;
  }

  void add(const ParameterRow& row, int stage) {
    HeldParameter parameter;
    parameter.name = row.name;
    parameter.sharding = row.sharding;
    parameter.stage = stage;
    parameter.unit = unit_;
    parameter.sum = sum_of(run_, row.name);
    parameter.muon =
        run_.optimizer.kind == OptimizerKind::muon && row.sharding.num_dims == 2 && !is_table_or_head(row.name);
    held_.push_back(std::move(parameter));
  }

  const RunSpec& run_;
  std::vector<HeldParameter> held_;
  int unit_ = -1;
  bool has_table_ = false;
};

}  // namespace

std::vector<HeldParameter> held_parameters(const RunSpec& run, int pipeline_rank) {
  return Held(run).of(pipeline_rank);
}

ShardingStrategy effective_sharding(const RunSpec& run) {
  return run.parallel.data_parallel > 1 ? run.parallel.sharding() : ShardingStrategy::no_shard;
}

int optimizer_shards(const RunSpec& run) {
  return effective_sharding(run) == ShardingStrategy::no_shard ? 1 : run.parallel.data_parallel;
}

bool reduces_every_micro_batch(const RunSpec& run) {
  return run.parallel.data_parallel > 1 &&
         (run.parallel.reduce_every_microbatch || effective_sharding(run) >= ShardingStrategy::optim_grads);
}

FlatPlan flat_plan(const RunSpec& run, int pipeline_rank, int shards) {
  std::vector<HeldParameter> parameters = held_parameters(run, pipeline_rank);
  const bool by_unit = reduces_every_micro_batch(run);
  std::vector<FlatItem> items;
  for (const HeldParameter& parameter : parameters)
    items.push_back({&parameter.sharding, parameter.numel(), by_unit ? parameter.unit : 0,
                     parameter.tied_use || parameter.shared_embedding, parameter.muon});
  const std::int64_t dp = run.parallel.data_parallel;
  const std::int64_t bucket_size =
      run.parallel.ddp_bucket_size.value_or(std::max<std::int64_t>(40'000'000, 1'000'000 * dp));
  return {cut_flat(items, bucket_size, shards), std::move(parameters)};
}

}  // namespace megatron::spec
