#include "config/nearest.h"
#include "config/rules.h"

namespace megatron::config {
namespace {

void required(RuleContext& c) {
  const auto& m = c.run().model;
  if (c.given("--encoder-num-layers") && c.given("--num-layers")) c.exclusive("--encoder-num-layers", "--num-layers");
  if (c.mode() == ParseMode::layout) return;
  if (m.num_layers == 0) c.required("--num-layers");
  if (m.hidden_size == 0) c.required("--hidden-size");
  if (m.num_attention_heads == 0) c.required("--num-attention-heads");
  if (m.seq_length == 0) c.required("--seq-length");
  if (m.max_position_embeddings == 0)
    c.required("--max-position-embeddings", "--seq-length gives it where it is not set");
}

void heads(RuleContext& c) {
  const auto& m = c.run().model;
  const std::int64_t n = m.num_attention_heads, tp = c.run().parallel.tensor_parallel;
  if (n == 0) return;
  if (!c.given("--kv-channels") && m.hidden_size % n != 0)
    c.error({"--hidden-size", "--num-attention-heads"},
            str_cat(m.hidden_size, " is not a multiple of ", n, " heads; nearest: heads ",
                    nearest_divisors(n, m.hidden_size), " or hidden ", nearest_multiples(m.hidden_size, n),
                    ", or set --kv-channels"));
  if (n % tp != 0)
    c.error({"--num-attention-heads", "--tensor-model-parallel-size"},
            str_cat(n, " heads do not divide over ", tp, " ranks; nearest: ranks ", nearest_divisors(tp, n)));
}

void query_groups(RuleContext& c) {
  const auto& m = c.run().model;
  const std::int64_t n = m.num_attention_heads, tp = c.run().parallel.tensor_parallel;
  if (!c.switches().group_query_attention || n == 0 || m.num_query_groups < 1) return;
  if (n % m.num_query_groups != 0)
    c.error({"--num-attention-heads", "--num-query-groups"},
            str_cat(n, " heads do not divide into ", m.num_query_groups,
                    " groups; nearest: ", nearest_divisors(m.num_query_groups, n)));
  else if (m.num_query_groups % tp != 0 && tp % m.num_query_groups != 0)
    c.error({"--num-query-groups", "--tensor-model-parallel-size"},
            str_cat(m.num_query_groups, " key/value groups and ", tp,
                    " ranks: one must be a multiple of the other; nearest: groups ",
                    nearest_divisors(m.num_query_groups, tp)));
}

void widths(RuleContext& c) {
  const auto& m = c.run().model;
  const std::int64_t tp = c.run().parallel.tensor_parallel;
  if (m.ffn_hidden_size % tp != 0)
    c.error({"--ffn-hidden-size", "--tensor-model-parallel-size"},
            str_cat(m.ffn_hidden_size, " does not divide over ", tp,
                    " ranks; nearest: ", nearest_multiples(m.ffn_hidden_size, tp)));
}

void positions(RuleContext& c) {
  const auto& m = c.run().model;
  if (m.max_position_embeddings > 0 && m.max_position_embeddings < m.seq_length)
    c.error({"--max-position-embeddings", "--seq-length"},
            str_cat(m.max_position_embeddings, " positions are fewer than ", m.seq_length, " tokens of a sample"));
  const bool rope = m.position_embedding == spec::PositionEmbedding::rope;
  const auto* kind = c.occurrence("--position-embedding-type");
  if (c.switches().use_rotary_position_embeddings && kind != nullptr && c.word(kind->name) != "rope")
    c.error({"--use-rotary-position-embeddings", "--position-embedding-type"}, "contradict each other");
  if (!c.switches().add_position_embedding && !rope)
    c.error({"--no-position-embedding"}, "is only for rope; use --position-embedding-type none");
  if (rope && c.given("--rope-scaling-factor") && !c.switches().use_rope_scaling)
    c.refuse({"--rope-scaling-factor"}, "Megatron ignores it without its switch --use-rope-scaling; give both or none");
  if (!rope) return;
  const auto rotated = static_cast<std::int64_t>(static_cast<double>(m.kv_channels) * m.rotary_percent);
  if (m.kv_channels > 0 && (rotated < 2 || rotated % 2 != 0) && !c.draft().described.mla.enabled)
    c.error({"--rotary-percent", "--kv-channels"},
            str_cat("rope turns pairs: ", rotated, " of ", m.kv_channels, " elements are not an even number"));
}

void vocabulary(RuleContext& c) {
  const auto& m = c.run().model;
  const std::int64_t tp = c.run().parallel.tensor_parallel;
  if (c.given("--padded-vocab-size") && c.given("--vocab-size") && m.padded_vocab_size < m.vocab_size)
    c.error({"--padded-vocab-size", "--vocab-size"}, str_cat(m.padded_vocab_size, " rows cannot hold ", m.vocab_size));
  if (m.padded_vocab_size % tp != 0)
    c.error({c.given("--padded-vocab-size") ? "--padded-vocab-size" : "--vocab-size", "--tensor-model-parallel-size"},
            str_cat(m.padded_vocab_size, " rows do not divide over ", tp,
                    " ranks; nearest: ", nearest_multiples(m.padded_vocab_size, tp)));
  if (c.run().data.tokenizer_type == "ByteLevel" && c.given("--vocab-size") && m.vocab_size < 257)
    c.error({"--vocab-size", "--tokenizer-type"},
            str_cat("the tokenizer has 257 entries, the model only ", m.vocab_size, "; nearest: 257"));
  if (c.run().data.tokenizer_type == "NullTokenizer" && !c.given("--vocab-size"))
    c.error({"--tokenizer-type"}, "NullTokenizer needs --vocab-size");
}

}  // namespace

std::vector<Rule> model_rules() {
  return {{"required", required}, {"heads", heads},         {"query groups", query_groups},
          {"widths", widths},     {"positions", positions}, {"vocabulary", vocabulary}};
}

}  // namespace megatron::config
