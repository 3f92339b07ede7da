#include "config/summary.h"

#include <numeric>

#include "base/check.h"
#include "schedule/training_program.h"
#include "spec/batch_schedule.h"

namespace megatron::config {
namespace {

/// More than a part that is not built: counts of it may not exist.
bool has_mistakes(const ParsedRun& run) { return !run.errors.empty() || !run.refused.empty(); }

void count_model(const ParsedRun& run, Summary& out) {
  const auto& m = run.spec.model;
  out.has_model = m.num_layers > 0 && m.hidden_size > 0 && m.num_attention_heads > 0 && m.num_query_groups > 0;
  out.has_model = out.has_model && run.countable;
  if (!out.has_model) return;
  out.parameters = spec::count_parameters(m, run.described);
  if (out.global_batch > 0) out.flops_per_step = spec::flops_per_step(m, out.global_batch, run.described);
}

/// Parameters that each stage holds; a tied table stands on the first and on the last stage.
void count_stages(const ParsedRun& run, Summary& out) {
  const auto& p = run.spec.parallel;
  const auto& m = run.spec.model;
  if (!out.has_model || p.layers_per_stage.empty() || run.described.virtual_pipeline_size) return;
  const std::int64_t padding = (m.padded_vocab_size - m.vocab_size) * m.hidden_size;
  const std::int64_t table = m.padded_vocab_size * m.hidden_size;
  auto layer = out.parameters.layers.begin();
  for (std::size_t s = 0; s < p.layers_per_stage.size(); ++s) {
    const auto end = layer + p.layers_per_stage[s];
    std::int64_t held = std::accumulate(layer, end, std::int64_t{0}), unpadded = held;
    layer = end;
    const bool last = s + 1 == p.layers_per_stage.size();
    if (s == 0) {
      held += out.parameters.embedding;
      unpadded += out.parameters.embedding - padding;
    }
    if (last) {
      held += out.parameters.final_norm + out.parameters.multi_token_prediction;
      unpadded += out.parameters.final_norm + out.parameters.multi_token_prediction;
    }
    if (last && (!m.tied() || s > 0)) {
      held += table;
      unpadded += table - padding;
    }
    out.stage_parameters.push_back(held);
    out.stage_parameters_unpadded_vocab.push_back(unpadded);
  }
}

/// Of a batch that changes, at most as many are told.
constexpr std::size_t kMostBatchSizes = 1000;

void derive_lengths(const ParsedRun& run, Summary& out) {
  const auto& b = run.spec.batch;
  const auto& o = run.spec.optimizer;
  if (out.global_batch == 0) return;
  spec::BatchSpec batch = b;
  if (has_mistakes(run)) batch.samples_per_round = 0;  // sizes that the ranks cannot share are taken as they are
  const spec::BatchSchedule schedule(batch);
  if (!schedule.is_constant())
    for (const spec::BatchStretch& stretch : schedule.trajectory(spec::train_iterations(batch)))
      if (out.batch_sizes.size() < kMostBatchSizes)
        out.batch_sizes.push_back({stretch.first_sample, stretch.batch.global_batch});
  out.tokens_per_step = out.global_batch * run.spec.model.seq_length;
  if (b.train_samples) {
    out.train_samples = b.train_samples;
    out.train_iters = schedule.iterations_within(*b.train_samples);
    out.decay_samples = o.lr_decay_samples ? o.lr_decay_samples : b.train_samples;
  } else if (b.train_iters) {
    out.train_iters = b.train_iters;
    out.train_samples = schedule.samples_after(*b.train_iters);
    out.decay_samples = schedule.samples_after(o.lr_decay_iters.value_or(*b.train_iters));
  }
  if (!out.decay_samples) return;
  out.warmup_samples = o.lr_warmup_fraction
                           ? static_cast<std::int64_t>(*o.lr_warmup_fraction * static_cast<double>(*out.decay_samples))
                       : b.train_samples ? o.lr_warmup_samples
                                         : schedule.samples_after(o.lr_warmup_iters);
  const std::int64_t times = b.eval_interval && *b.eval_interval > 0 ? *out.train_iters / *b.eval_interval + 1 : 1;
  out.eval_batches = times * b.eval_iters;
}

void estimate_costs(const ParsedRun& run, Summary& out) {
  if (has_mistakes(run) || !out.has_model || run.spec.batch.num_micro_batches == 0) return;
  if (run.described.moe.num_experts || run.described.mla.enabled || run.described.mtp_num_layers > 0 ||
      run.spec.parallel.context_parallel > 1 || !run.described.linear_attention.variant.empty() ||
      run.described.attention_output_gate)
    return;
  if (schedule::program_problem(run.spec.parallel, run.spec.batch.num_micro_batches).empty())
    out.costs = schedule::run_costs(run.spec);
}

}  // namespace

Summary summarize(const ParsedRun& run) {
  Summary out;
  const auto& p = run.spec.parallel;
  if (p.data_parallel > 0) out.data_parallel = p.data_parallel;
  if (out.data_parallel && run.spec.batch.num_micro_batches > 0)
    out.num_micro_batches = run.spec.batch.num_micro_batches;
  out.has_experts = run.described.moe.num_experts.has_value();
  if (out.has_experts) {
    const std::int64_t product =
        run.described.moe.expert_tensor_parallel.value_or(p.tensor_parallel) * p.expert_parallel * p.pipeline_parallel;
    if (p.world_size % product == 0) out.expert_data_parallel = p.world_size / product;
  }
  const spec::BatchSpec& b = run.spec.batch;
  out.global_batch =
      has_mistakes(run) ? b.global_batch_size : spec::BatchSchedule(b).largest(spec::train_iterations(b)).global_batch;
  count_model(run, out);
  count_stages(run, out);
  derive_lengths(run, out);
  estimate_costs(run, out);
  return out;
}

}  // namespace megatron::config
