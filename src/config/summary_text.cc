#include <iomanip>
#include <sstream>

#include "base/units.h"
#include "config/summary.h"
#include "spec/rank_order.h"

namespace megatron::config {
namespace {

std::string grouped(std::int64_t number) {
  std::string digits = std::to_string(number), out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ' ';
    out += digits[i];
  }
  return out;
}

class Report {
 public:
  explicit Report(std::ostringstream& out) : out_(out) {}

  template <typename... Parts>
  void line(const char* title, const Parts&... parts) {
    out_ << "  " << std::left << std::setw(26) << title << std::right;
    (out_ << ... << parts) << '\n';
  }

 private:
  std::ostringstream& out_;
};

std::string list_text(const std::vector<std::int64_t>& values) {
  std::string text;
  const std::size_t shown = values.size() > 16 ? 8 : values.size();
  for (std::size_t i = 0; i < shown; ++i) text += (i > 0 ? " | " : "") + grouped(values[i]);
  if (shown < values.size()) text += " | ... | " + grouped(values.back());
  return text;
}

void print_layout(const ParsedRun& run, const Summary& s, Report& r) {
  const auto& p = run.spec.parallel;
  r.line("world size", p.world_size, " = tensor ", p.tensor_parallel, " x pipeline ", p.pipeline_parallel,
         p.context_parallel > 1 ? " x context " + std::to_string(p.context_parallel) : "", " x data ",
         s.data_parallel ? std::to_string(*s.data_parallel) : "?");
  r.line("sequence parallel", p.sequence_parallel ? "on" : "off");
  std::vector<std::int64_t> layers = p.layers_per_stage;
  if (!layers.empty()) r.line("layers per stage", list_text(layers));
  if (run.described.virtual_pipeline_size) r.line("virtual stages per rank", *run.described.virtual_pipeline_size);
  if (s.has_experts && s.expert_data_parallel) r.line("expert data parallel", *s.expert_data_parallel);
}

void print_batch(const ParsedRun& run, const Summary& s, Report& r) {
  const auto& b = run.spec.batch;
  if (s.global_batch > 0)
    r.line(s.batch_sizes.size() > 1 ? "largest global batch" : "global batch", grouped(s.global_batch),
           " sequences = micro-batch ", b.micro_batch_size, " x data ",
           s.data_parallel ? std::to_string(*s.data_parallel) : "?", " x micro-batches ",
           s.num_micro_batches ? std::to_string(*s.num_micro_batches) : "?");
  if (s.batch_sizes.size() > 1) {
    std::vector<std::int64_t> sizes;
    for (const auto& [sample, size] : s.batch_sizes) sizes.push_back(size);
    r.line("global batch, changing", list_text(sizes));
  }
  if (s.tokens_per_step) r.line("tokens per step", grouped(*s.tokens_per_step));
  if (s.train_iters) r.line("length", grouped(*s.train_iters), " iterations, ", grouped(*s.train_samples), " samples");
  if (s.warmup_samples)
    r.line("learning rate schedule", "warm-up ", grouped(*s.warmup_samples), " of ", grouped(*s.decay_samples),
           " samples");
  if (s.eval_batches) r.line("evaluation", grouped(*s.eval_batches), " batches in all");
}

void print_model(const ParsedRun& run, const Summary& s, Report& r) {
  const auto& m = run.spec.model;
  r.line("vocabulary", grouped(m.vocab_size), ", padded to ", grouped(m.padded_vocab_size));
  if (!s.has_model) return;
  r.line("attention", m.num_attention_heads, " heads of ", m.kv_channels, ", ", m.num_query_groups,
         " key/value groups");
  r.line("ffn hidden size", grouped(m.ffn_hidden_size), m.gated_linear_unit ? ", gated" : "");
  r.line("positions", grouped(m.max_position_embeddings));
  r.line("parameters", grouped(s.parameters.unpadded_vocab), " (padded vocabulary: ", grouped(s.parameters.total), ")");
  if (s.parameters.multi_token_prediction > 0)
    r.line("  multi-token prediction", grouped(s.parameters.multi_token_prediction));
  if (!s.stage_parameters.empty()) {
    r.line("parameters per stage", list_text(s.stage_parameters_unpadded_vocab));
    if (m.padded_vocab_size != m.vocab_size) r.line("  padded vocabulary", list_text(s.stage_parameters));
  }
  if (s.flops_per_step) r.line("model FLOPs per step", std::scientific, std::setprecision(4), *s.flops_per_step);
}

/// One line for each pipeline rank: all ranks of one are alike but for the padding of their shards.
void print_memory(const ParsedRun& run, const Summary& s, std::ostringstream& out) {
  if (!s.costs) return;
  out << "memory of one rank             parameters  main weights     gradients     optimizer   activations"
         " communication         total\n";
  const std::vector<int> ranks = spec::dense_order(run.spec.parallel).group_of(0, "pp");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks.size() > 8 && i > 1 && i + 1 < ranks.size()) continue;
    const spec::RankMemory& m = s.costs->memory[static_cast<std::size_t>(ranks[i])];
    out << (ranks.size() > 1 ? "  pipeline rank " : "  each rank     ") << std::left << std::setw(11)
        << (ranks.size() > 1 ? std::to_string(i) : std::string()) << std::right;
    for (std::int64_t bytes :
         {m.parameters, m.main_parameters, m.gradients, m.optimizer, m.activations, m.communication, m.total()})
      out << std::setw(14) << format_bytes(bytes);
    out << '\n';
  }
}

void print_traffic(const Summary& s, std::ostringstream& out) {
  if (!s.costs || s.costs->step_traffic.empty()) return;
  out << "sent by one rank in a step\n";
  for (const auto& [group, operations] : s.costs->step_traffic)
    for (const auto& [operation, bytes] : operations)
      out << "  " << std::left << std::setw(11) << group << std::setw(15) << operation << std::right << std::setw(14)
          << format_bytes(bytes) << '\n';
}

void print_list(const char* title, const std::vector<std::string>& lines, std::ostringstream& out) {
  if (lines.empty()) return;
  out << title << '\n';
  for (const std::string& line : lines) out << "  " << line << '\n';
}

}  // namespace

std::string summary_text(const ParsedRun& run, const Summary& s) {
  std::ostringstream out;
  Report report(out);
  out << "layout\n";
  print_layout(run, s, report);
  out << "model\n";
  print_model(run, s, report);
  out << "batch\n";
  print_batch(run, s, report);
  print_memory(run, s, out);
  print_traffic(s, out);
  print_list("notices", run.notices, out);
  std::vector<std::string> errors = run.errors;
  errors.insert(errors.end(), run.refused.begin(), run.refused.end());
  print_list("errors", errors, out);
  print_list("not built in this version", run.not_built, out);
  out << (run.accepted() ? "valid\n" : "refused\n");
  return out.str();
}

}  // namespace megatron::config
