#include <algorithm>

#include "config/nearest.h"
#include "config/rules.h"

namespace megatron::config {
namespace {

constexpr std::string_view kModules[] = {"core_attn", "layernorm", "mlp"};
/// Megatron-LM's other modules, which belong to layers that are not built.
constexpr std::string_view kForeignModules[] = {"moe_act", "mla_up_proj", "moe", "shared_experts"};

void granularity(RuleContext& c) {
  const spec::RecomputeSpec& r = c.run().recompute;
  if (c.given("--recompute-activations") && c.word("--recompute-granularity") == "full")
    c.exclusive("--recompute-activations", "--recompute-granularity");
  const bool full = r.granularity == spec::RecomputeGranularity::full;
  if (full && !c.given("--recompute-method"))
    c.error({"--recompute-granularity"}, "full needs --recompute-method uniform or block");
  if (full && !c.given("--recompute-num-layers"))
    c.error({"--recompute-granularity"}, "full needs --recompute-num-layers; nearest: 1");
  if (full) return;
  const bool selective = r.granularity == spec::RecomputeGranularity::selective;
  for (const std::string_view name : {"--recompute-method", "--recompute-num-layers"}) {
    if (!c.given(name)) continue;
    if (selective)
      c.error({"--recompute-granularity", name}, str_cat("selective takes no ", name.substr(12)));
    else
      c.error({name}, "needs --recompute-granularity full");
  }
}

void modules(RuleContext& c) {
  if (!c.given("--recompute-modules")) return;
  if (c.run().recompute.granularity != spec::RecomputeGranularity::selective)
    c.error({"--recompute-modules"}, "needs --recompute-granularity selective");
  for (const std::string& name : c.switches().recompute_modules) {
    const auto is_name = [&](std::string_view other) { return other == name; };
    if (std::any_of(std::begin(kModules), std::end(kModules), is_name)) continue;
    if (std::any_of(std::begin(kForeignModules), std::end(kForeignModules), is_name))
      c.not_built({"--recompute-modules"}, str_cat("module ", name,
                                                   " belongs to layers that are not built in this "
                                                   "version; use core_attn, layernorm, mlp"));
    else
      c.error({"--recompute-modules"}, str_cat("module ", name, " is unknown; nearest: core_attn, layernorm, mlp"));
  }
}

}  // namespace

std::vector<Rule> recompute_rules() { return {{"recompute", granularity}, {"recomputed modules", modules}}; }

}  // namespace megatron::config
