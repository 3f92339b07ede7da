#include <nlohmann/json.hpp>

#include "config/summary.h"

namespace megatron::config {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json optional(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

/// Nothing where the number is zero: the configuration did not say enough.
Json known(std::int64_t value) { return value > 0 ? Json(value) : Json(); }

void add_parameters(const ParsedRun& run, const Summary& s, Json& json) {
  json["parameters_total"] = s.has_model ? Json(s.parameters.total) : Json();
  json["parameters_unpadded_vocab"] = s.has_model ? Json(s.parameters.unpadded_vocab) : Json();
  json["parameters_mtp"] = s.has_model ? Json(s.parameters.multi_token_prediction) : Json();
  json["parameters_per_stage"] = s.stage_parameters;
  json["parameters_per_stage_unpadded_vocab"] = s.stage_parameters_unpadded_vocab;
  json["sequence_parallel"] = run.spec.parallel.sequence_parallel;
  if (s.has_experts) json["expert_dp"] = optional(s.expert_data_parallel);
}

Json memory(const std::optional<schedule::RunCosts>& costs) {
  Json list = Json::array();
  if (!costs) return list;
  for (const spec::RankMemory& m : costs->memory)
    list.push_back({{"parameters", m.parameters},
                    {"main_parameters", m.main_parameters},
                    {"gradients", m.gradients},
                    {"optimizer", m.optimizer},
                    {"activations", m.activations},
                    {"packed", m.packed},
                    {"communication", m.communication}});
  return list;
}

}  // namespace

std::string summary_json(const ParsedRun& run, const Summary& s) {
  const auto& m = run.spec.model;
  const auto& p = run.spec.parallel;
  Json json;
  json["world_size"] = p.world_size;
  json["tp"] = p.tensor_parallel;
  json["pp"] = p.pipeline_parallel;
  json["cp"] = p.context_parallel;
  json["ep"] = p.expert_parallel;
  json["dp"] = optional(s.data_parallel);
  json["micro_batch_size"] = known(run.spec.batch.micro_batch_size);
  json["global_batch_size"] = known(s.global_batch);
  json["num_microbatches"] = optional(s.num_micro_batches);
  if (!s.batch_sizes.empty()) json["global_batch_sizes"] = s.batch_sizes;
  json["vocab_size"] = m.vocab_size;
  json["padded_vocab_size"] = m.padded_vocab_size;
  json["layers_per_stage"] = run.described.layers_per_stage.empty() ? Json() : Json(run.described.layers_per_stage);
  json["virtual_pipeline_size"] = optional(run.described.virtual_pipeline_size);
  json["ffn_hidden_size"] = known(m.ffn_hidden_size);
  json["kv_channels"] = known(m.kv_channels);
  json["num_query_groups"] = known(m.num_query_groups);
  json["seq_length"] = known(m.seq_length);
  json["max_position_embeddings"] = known(m.max_position_embeddings);
  json["tokens_per_global_batch"] = optional(s.tokens_per_step);
  add_parameters(run, s, json);
  json["flops_per_step"] = optional(s.flops_per_step);
  json["train_iters"] = optional(s.train_iters);
  json["train_samples"] = optional(s.train_samples);
  json["lr_warmup_samples"] = optional(s.warmup_samples);
  json["lr_decay_samples"] = optional(s.decay_samples);
  json["eval_batches"] = optional(s.eval_batches);
  json["memory_bytes"] = memory(s.costs);
  json["communication_bytes_per_step"] = s.costs ? Json(s.costs->step_traffic) : Json();
  json["notices"] = run.notices;
  json["errors"] = run.errors;
  json["refused"] = run.refused;
  json["not_built"] = run.not_built;
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace megatron::config
