#include "config/option_table.h"

namespace megatron::config {

std::vector<Option> recompute_options() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(choice(
      "--recompute-granularity", [](Draft & d) -> auto& { return d.run.recompute.granularity; },
      {{"full", spec::RecomputeGranularity::full}, {"selective", spec::RecomputeGranularity::selective}},
      "Activations that backward computes again instead of keeping them: of whole layers, or --recompute-modules."));
  add(flag(
      "--recompute-activations", [](Draft & d) -> auto& { return d.switches.recompute_activations; },
      "The same as --recompute-granularity selective."));
  add(choice(
          "--recompute-method", [](Draft & d) -> auto& { return d.run.recompute.method; },
          {{"uniform", spec::RecomputeMethod::uniform}, {"block", spec::RecomputeMethod::block}},
          "With full: all layers in groups of --recompute-num-layers, or as many first layers of each stage, one by "
          "one.")
          .no_default());
  add(value(
          "--recompute-num-layers", [](Draft & d) -> auto& { return d.run.recompute.num_layers; },
          "With full: layers of a group (uniform), recomputed layers of each virtual stage (block).")
          .in("layers")
          .at_least(1)
          .no_default());
  add(list(
      "--recompute-modules", [](Draft & d) -> auto& { return d.switches.recompute_modules; },
      "With selective: core_attn, layernorm, mlp; unset: core_attn."));
  add(flag(
      "--distribute-saved-activations", [](Draft & d) -> auto& { return d.run.recompute.distribute_saved_activations; },
      "With full: each tensor-parallel rank keeps its part of what a group starts from."));
  for (Option& row : rows) row.topic = "Recompute";
  return rows;
}

}  // namespace megatron::config
