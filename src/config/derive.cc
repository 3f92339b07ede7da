#include "config/derive.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "config/text_value.h"
#include "spec/batch_schedule.h"
#include "spec/model_count.h"

namespace megatron::config {
namespace {

using spec::Activation;

constexpr std::int64_t kByteLevelVocabulary = 257;
constexpr std::int64_t kMostRanks = 1'000'000'000;  // where no world size is given

void derive_activation(Draft& d, Derived& out) {
  const Switches& s = d.switches;
  auto& m = d.run.model;
  const Activation gelu = s.bias_gelu_fusion ? Activation::gelu_tanh : Activation::gelu_erf;
  m.gated_linear_unit = s.swiglu || s.geglu || s.gated_linear_unit;
  m.activation = s.swiglu         ? Activation::silu
                 : s.squared_relu ? Activation::squared_relu
                 : s.openai_gelu  ? Activation::gelu_tanh
                                  : gelu;
  if (s.activation_func.empty()) {
    out.activation_conflict = s.swiglu + s.geglu + s.squared_relu + s.openai_gelu > 1;
    return;
  }
  const Activation by_switch = m.activation;
  const std::string& name = s.activation_func;
  m.activation = name == "gelu"        ? gelu
                 : name == "gelu_tanh" ? Activation::gelu_tanh
                 : name == "gelu_erf"  ? Activation::gelu_erf
                 : name == "silu"      ? Activation::silu
                                       : Activation::squared_relu;
  out.activation_conflict = (s.swiglu || s.squared_relu || s.openai_gelu) && m.activation != by_switch;
}

void derive_sizes(Draft& d) {
  auto& m = d.run.model;
  const Switches& s = d.switches;
  if (m.num_layers == 0) m.num_layers = s.encoder_num_layers.value_or(0);
  m.num_query_groups = s.group_query_attention ? s.num_query_groups : m.num_attention_heads;
  if (m.kv_channels == 0 && m.num_attention_heads > 0) m.kv_channels = m.hidden_size / m.num_attention_heads;
  if (m.ffn_hidden_size == 0)
    m.ffn_hidden_size = m.gated_linear_unit ? 8 * m.hidden_size / 3 / 64 * 64 : 4 * m.hidden_size;
  if (m.max_position_embeddings == 0) m.max_position_embeddings = m.seq_length;
  if (s.use_rotary_position_embeddings) m.position_embedding = spec::PositionEmbedding::rope;
  if (s.use_rope_scaling) {
    m.rope_scaling.emplace();
    m.rope_scaling->factor = s.rope_scaling_factor;
  }
  d.run.numerics.params_dtype = s.bf16 ? DType::bfloat16 : s.fp16 ? DType::float16 : DType::float32;
}

void derive_recompute(Draft& d) {
  spec::RecomputeSpec& r = d.run.recompute;
  if (d.switches.recompute_activations && r.granularity == spec::RecomputeGranularity::none)
    r.granularity = spec::RecomputeGranularity::selective;
  if (r.granularity != spec::RecomputeGranularity::selective) return;
  const std::vector<std::string>& names = d.switches.recompute_modules;
  const auto named = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  r.modules = {names.empty() || named("core_attn"), named("layernorm"), named("mlp")};
}

/// Counts of larger models would leave 64 bits.
constexpr double kMostParameters = 1e17;

bool is_too_large(const Draft& d) {
  const auto& m = d.run.model;
  const auto& moe = d.described.moe;
  auto real = [](std::int64_t n) { return static_cast<double>(n); };
  const double ffn = std::max(real(m.ffn_hidden_size), real(moe.ffn_hidden_size.value_or(0)));
  const double layer = real(m.hidden_size) * (3 * ffn * real(moe.num_experts.value_or(1)) +
                                              4 * real(m.num_attention_heads) * real(m.kv_channels));
  const double tables = 2 * real(m.hidden_size) * (real(m.padded_vocab_size) + real(m.max_position_embeddings));
  return real(m.num_layers) * layer + tables > kMostParameters;
}

void derive_vocabulary(Draft& d, Derived& out) {
  auto& m = d.run.model;
  const Switches& s = d.switches;
  m.vocab_size = s.vocab_size.value_or(d.run.data.tokenizer_type == "ByteLevel" ? kByteLevelVocabulary : 0);
  if (m.vocab_size == 0) {
    out.default_vocabulary = !s.padded_vocab_size;
    m.vocab_size = s.padded_vocab_size.value_or(kDefaultVocabulary);
  }
  set_vocabulary(m, m.vocab_size, d.run.parallel.tensor_parallel);
  if (!s.pad_vocab_size) m.padded_vocab_size = m.vocab_size;
  if (s.padded_vocab_size) m.padded_vocab_size = *s.padded_vocab_size;
}

void derive_world(Draft& d, Derived& out, std::optional<int> launcher) {
  auto& p = d.run.parallel;
  const std::int64_t product = std::int64_t{p.tensor_parallel} * p.pipeline_parallel * p.context_parallel;
  const std::int64_t world = launcher ? *launcher : d.switches.world_size.value_or(std::min(product, kMostRanks));
  p.world_size = static_cast<int>(world);
  p.data_parallel = world % product == 0 ? static_cast<int>(world / product) : 0;
  if (p.tensor_parallel == 1 && p.sequence_parallel) {
    p.sequence_parallel = false;
    out.sequence_parallel_turned_off = true;
  }
  const std::string& backend = d.switches.distributed_backend;
  if (backend == "local" || backend == "mpi") d.run.distributed_backend = backend;
}

void derive_experts(Draft& d, Derived& out) {
  auto& moe = d.described.moe;
  if (!moe.num_experts || d.run.model.num_layers == 0) return;
  try {
    moe.moe_layers = spec::parse_layer_pattern(moe.layer_freq, d.run.model.num_layers);
  } catch (const ConfigError& error) {
    out.pattern_problem = error.what();
  }
}

/// The batch that changes, where it is asked for; `out` says why it cannot be.
void derive_batch_changes(Draft& d, Derived& out) {
  auto& b = d.run.batch;
  const Switches& s = d.switches;
  if (s.step_batch_size_schedule) {
    try {
      b.batch_steps = spec::parse_batch_steps(*s.step_batch_size_schedule, d.run.model.seq_length);
      if (b.global_batch_size == 0) b.global_batch_size = b.batch_steps.back().global_batch;
    } catch (const ConfigError& error) {
      out.steps_problem = error.what();
    }
  }
  if (s.rampup_batch_size.size() != 3 || b.global_batch_size == 0) return;
  const auto number = [&](std::size_t i) { return parse_integer(s.rampup_batch_size[i]).value_or(0); };
  const spec::BatchRampup rampup{number(0), number(1), number(2), b.global_batch_size};
  try {
    spec::check(rampup);
    b.rampup = rampup;
  } catch (const ConfigError& error) {
    out.rampup_problem = error.what();
  }
}

void derive_batch(Draft& d, Derived& out) {
  auto& b = d.run.batch;
  b.samples_per_round = b.micro_batch_size * d.run.parallel.data_parallel;
  derive_batch_changes(d, out);
  if (b.global_batch_size == 0) b.global_batch_size = b.samples_per_round;
  if (b.samples_per_round == 0) return;
  b.num_micro_batches = spec::BatchSchedule(b).largest(spec::train_iterations(b)).num_micro_batches;
  const std::int64_t rounded = b.global_batch_size / b.samples_per_round * b.samples_per_round;
  if (!d.switches.decrease_batch_size_if_needed || rounded == 0 || rounded == b.global_batch_size) return;
  out.rounded_from = std::exchange(b.global_batch_size, rounded);
}

void derive_rest(Draft& d) {
  if (d.switches.split) {
    d.run.data.split = *d.switches.split;
    d.run.data.split_given = true;
  }
  if (d.switches.dataloader_type == "cyclic") d.run.data.dataloader_type = spec::DataloaderType::cyclic;
  if (!d.switches.no_weight_decay_cond_type.empty()) d.run.optimizer.apply_wd_to_qk_layernorm = true;
}

}  // namespace

void set_vocabulary(spec::ModelSpec& model, std::int64_t vocab_size, int tensor_parallel) {
  model.vocab_size = vocab_size;
  model.padded_vocab_size = round_up(vocab_size, model.make_vocab_size_divisible_by * tensor_parallel);
}

Derived derive(Draft& d, std::optional<int> launcher_world_size) {
  Derived out;
  derive_activation(d, out);
  derive_sizes(d);
  derive_recompute(d);
  derive_world(d, out, launcher_world_size);
  derive_vocabulary(d, out);
  out.too_large = is_too_large(d);
  derive_pipeline(d, out);
  derive_experts(d, out);
  derive_batch(d, out);
  derive_rest(d);
  return out;
}

}  // namespace megatron::config
