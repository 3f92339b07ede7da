#include <algorithm>

#include "config/derive.h"
#include "config/parse.h"

namespace megatron::config {
namespace {

const char* activation_name(spec::Activation activation) {
  switch (activation) {
    case spec::Activation::gelu_tanh:
      return "gelu_tanh";
    case spec::Activation::gelu_erf:
      return "gelu_erf";
    case spec::Activation::squared_relu:
      return "squared_relu";
    case spec::Activation::silu:
      return "silu";
  }
  return "";
}

/// The switches that give back a run's own fields.
Switches switches_of(const spec::RunSpec& run) {
  const auto& m = run.model;
  Switches s;
  s.activation_func = activation_name(m.activation);
  s.gated_linear_unit = m.gated_linear_unit;
  s.group_query_attention = m.num_query_groups > 0;
  s.num_query_groups = m.num_query_groups;
  s.use_rope_scaling = m.rope_scaling.has_value();
  if (m.rope_scaling) s.rope_scaling_factor = m.rope_scaling->factor;
  s.bf16 = run.numerics.params_dtype == DType::bfloat16;
  s.fp16 = run.numerics.params_dtype == DType::float16;
  if (m.vocab_size > 0) s.vocab_size = m.vocab_size;
  if (run.parallel.world_size > 0) s.world_size = run.parallel.world_size;
  const spec::RecomputeModules& kept = run.recompute.modules;
  for (const auto& [name, on] :
       {std::pair{"core_attn", kept.core_attn}, std::pair{"layernorm", kept.layernorm}, std::pair{"mlp", kept.mlp}})
    if (on) s.recompute_modules.emplace_back(name);
  s.distributed_backend = run.distributed_backend.value_or(s.distributed_backend);
  return s;
}

}  // namespace

std::vector<std::string> complete_run(spec::RunSpec& run, std::optional<int> launcher_world_size) {
  Draft draft;
  draft.run = run;
  draft.switches = switches_of(run);
  const auto scaling = run.model.rope_scaling;
  const Derived derived = derive(draft, launcher_world_size);
  draft.run.model.rope_scaling = scaling;
  const Tables tables;
  Input input;
  if (draft.switches.world_size)
    input.known.push_back({"--world-size", "--world-size", {str_cat(*draft.switches.world_size)}, "command line"});
  Findings findings;
  RuleContext context(tables, input, draft, ParseMode::layout, findings);
  for (auto table : {model_rules, parallel_rules, pipeline_rules})
    for (const Rule& rule : table()) rule.check(context);
  report_split_problem(context, derived.split_problem);
  run = draft.run;
  std::sort(findings.errors.begin(), findings.errors.end());
  return findings.errors;
}

}  // namespace megatron::config
