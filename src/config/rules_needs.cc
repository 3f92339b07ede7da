#include "config/rules.h"

namespace megatron::config {
namespace {

/// An option that means something only beside another one.
struct Need {
  std::string_view option;
  bool (*met)(const RuleContext&);
  const char* what;          // "needs …"
  bool only_notice = false;  // public launch scripts that Megatron accepts give it idle
};

bool has_rope(const RuleContext& c) {
  const std::string kind = c.word("--position-embedding-type");
  return c.run().model.position_embedding == spec::PositionEmbedding::rope || kind == "yarn" || kind == "mrope";
}
bool has_wsd(const RuleContext& c) { return c.run().optimizer.lr_decay_style == spec::DecayStyle::wsd; }
bool has_save(const RuleContext& c) { return c.run().checkpoint.save.has_value(); }
bool has_load(const RuleContext& c) { return c.run().checkpoint.load.has_value(); }
template <spec::OptimizerKind kind>
bool is(const RuleContext& c) {
  return c.run().optimizer.kind == kind;
}
/// The optimizer, or what Muon leaves to another one.
template <spec::OptimizerKind kind>
bool uses(const RuleContext& c) {
  const auto& o = c.run().optimizer;
  return o.kind == kind || (o.kind == spec::OptimizerKind::muon && o.muon.scalar_optimizer == kind);
}
constexpr auto is_adam = is<spec::OptimizerKind::adam>, is_sgd = is<spec::OptimizerKind::sgd>,
               is_muon = is<spec::OptimizerKind::muon>, uses_adam = uses<spec::OptimizerKind::adam>,
               uses_lion = uses<spec::OptimizerKind::lion>;
bool has_warmup(const RuleContext& c) {
  const auto& o = c.run().optimizer;
  return o.lr_warmup_fraction.value_or(0) > 0 || o.lr_warmup_iters > 0 || o.lr_warmup_samples > 0;
}
bool records(const RuleContext& c) { return c.run().log.profile || c.run().log.trace.has_value(); }
bool has_qk_norm(const RuleContext& c) { return c.run().model.qk_layernorm; }
bool has_null_tokenizer(const RuleContext& c) { return c.run().data.tokenizer_type == "NullTokenizer"; }
/// The tokenizer of a checkpoint, whose files may have moved, is not known from the options.
bool of_checkpoint(const RuleContext& c) { return c.mode() == ParseMode::layout; }
bool has_gpt2_tokenizer(const RuleContext& c) {
  return of_checkpoint(c) || c.run().data.tokenizer_type == "GPT2BPETokenizer";
}
bool has_tiktoken(const RuleContext& c) { return c.run().data.tokenizer_type == "TikTokenizer"; }
bool has_sentencepiece(const RuleContext& c) {
  const std::string& type = c.run().data.tokenizer_type;
  return type == "SentencePieceTokenizer" || type == "GPTSentencePieceTokenizer" || type == "Llama2Tokenizer";
}
bool has_tokenizer_model(const RuleContext& c) {
  return of_checkpoint(c) || has_tiktoken(c) || has_sentencepiece(c) ||
         c.run().data.tokenizer_type == "HuggingFaceTokenizer";
}
bool has_changing_weight_decay(const RuleContext& c) {
  return c.run().optimizer.weight_decay_incr_style != spec::WeightDecayStyle::constant;
}

constexpr const char* kRope = "--position-embedding-type rope";
constexpr const char* kWsd = "--lr-decay-style WSD";
constexpr const char* kGrowingDecay = "--weight-decay-incr-style linear or cosine";
constexpr const char* kMuon = "--optimizer muon";
constexpr const char* kUsesAdam = "--optimizer adam, or muon with --muon-scalar-optimizer adam";
constexpr const char* kUsesLion = "--optimizer lion, or muon with --muon-scalar-optimizer lion";
constexpr const char* kGpt2Tokenizer = "--tokenizer-type GPT2BPETokenizer";
constexpr const char* kTiktoken = "--tokenizer-type TikTokenizer";
constexpr const char* kSentencePiece =
    "--tokenizer-type SentencePieceTokenizer, GPTSentencePieceTokenizer or Llama2Tokenizer";
constexpr const char* kTokenizerModel =
    "--tokenizer-type HuggingFaceTokenizer, SentencePieceTokenizer, GPTSentencePieceTokenizer, Llama2Tokenizer or "
    "TikTokenizer";
constexpr const char* kNullTokenizer = "--tokenizer-type NullTokenizer";

constexpr Need kNeeds[] = {
    {"--num-query-groups", [](const RuleContext& c) { return c.switches().group_query_attention; },
     "its switch --group-query-attention"},
    {"--rotary-base", has_rope, kRope},
    {"--rotary-percent", has_rope, kRope},
    {"--rotary-interleaved", has_rope, kRope},
    {"--rotary-seq-len-interpolation-factor", has_rope, kRope},
    {"--use-rope-scaling", has_rope, kRope},
    {"--rope-scaling-factor", has_rope, kRope},
    {"--apply-wd-to-qk-layernorm", has_qk_norm, "--qk-layernorm"},
    {"--no-weight-decay-cond-type", has_qk_norm, "--qk-layernorm"},
    {"--adam-beta1", uses_adam, kUsesAdam},
    {"--adam-beta2", uses_adam, kUsesAdam},
    {"--adam-eps", uses_adam, kUsesAdam},
    {"--no-decoupled-weight-decay", is_adam, "--optimizer adam"},
    {"--sgd-momentum", is_sgd, "--optimizer sgd"},
    {"--sgd-nesterov", is_sgd, "--optimizer sgd"},
    {"--lion-beta1", uses_lion, kUsesLion},
    {"--lion-beta2", uses_lion, kUsesLion},
    {"--muon-momentum", is_muon, kMuon},
    {"--muon-nesterov", is_muon, kMuon},
    {"--muon-no-split-qkv", is_muon, kMuon},
    {"--muon-scale-mode", is_muon, kMuon},
    {"--muon-extra-scale-factor", is_muon, kMuon},
    {"--muon-coefficient-type", is_muon, kMuon},
    {"--muon-num-ns-steps", is_muon, kMuon},
    {"--muon-tp-mode", is_muon, kMuon},
    {"--muon-scalar-optimizer", is_muon, kMuon},
    {"--lr-warmup-init", has_warmup, "a warm-up (--lr-warmup-iters, --lr-warmup-samples or --lr-warmup-fraction)"},
    {"--lr-wsd-decay-style", has_wsd, kWsd},
    {"--lr-wsd-decay-iters", has_wsd, kWsd},
    {"--lr-wsd-decay-samples", has_wsd, kWsd},
    {"--start-weight-decay", has_changing_weight_decay, kGrowingDecay},
    {"--end-weight-decay", has_changing_weight_decay, kGrowingDecay},
    {"--override-opt_param-scheduler", has_load, "--load"},
    {"--use-checkpoint-opt_param-scheduler", has_load, "--load"},
    {"--null-tokenizer-eod-id", has_null_tokenizer, kNullTokenizer},
    {"--null-tokenizer-pad-id", has_null_tokenizer, kNullTokenizer},
    {"--vocab-file", has_gpt2_tokenizer, kGpt2Tokenizer, true},
    {"--merge-file", has_gpt2_tokenizer, kGpt2Tokenizer, true},
    {"--tokenizer-model", has_tokenizer_model, kTokenizerModel, true},
    {"--tiktoken-pattern", has_tiktoken, kTiktoken, true},
    {"--tiktoken-num-special-tokens", has_tiktoken, kTiktoken, true},
    {"--tokenizer-sentencepiece-legacy", has_sentencepiece, kSentencePiece, true},
    {"--no-tokenizer-sentencepiece-ignore-extra-whitespaces", has_sentencepiece, kSentencePiece, true},
    {"--save-interval", has_save, "--save", true},
    {"--no-save-optim", has_save, "--save"},
    {"--ckpt-step", has_load, "--load"},
    {"--no-load-optim", has_load, "--load"},
    {"--exit-on-missing-checkpoint", has_load, "--load"},
    {"--profile-step-start", records, "--profile or --trace", true},
    {"--profile-step-end", records, "--profile or --trace", true},
};

void needs(RuleContext& c) {
  for (const Need& need : kNeeds) {
    if (!c.user_asks(need.option) || need.met(c)) continue;
    if (need.only_notice)
      c.notice(str_cat(mention_of(*c.occurrence(need.option)), " has no effect: needs ", need.what));
    else
      c.error({need.option}, str_cat("needs ", need.what));
  }
}

}  // namespace

std::vector<Rule> needs_rules() { return {{"needs", needs}}; }

}  // namespace megatron::config
