#include "spec/model_count.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace megatron::spec {
namespace {

std::int64_t norm_weights(const ModelSpec& m, std::int64_t width) {
  return width * (m.normalization == Normalization::layer_norm ? 2 : 1);
}

std::int64_t linear(std::int64_t out, std::int64_t in, bool bias) { return out * in + (bias ? out : 0); }

std::int64_t mlp(const ModelSpec& m, std::int64_t ffn, bool bias) {
  return linear(m.gated_linear_unit ? 2 * ffn : ffn, m.hidden_size, bias) + linear(m.hidden_size, ffn, bias);
}

std::int64_t latent_attention(const ModelSpec& m, const MlaDescription& d) {
  const std::int64_t heads = m.num_attention_heads, query = heads * (d.qk_head_dim + d.qk_pos_emb_head_dim);
  std::int64_t sum = 0;
  if (d.q_lora_rank) {
    sum += linear(*d.q_lora_rank, m.hidden_size, false) + linear(query, *d.q_lora_rank, false);
    if (m.qk_layernorm) sum += norm_weights(m, *d.q_lora_rank);
  } else {
    sum += linear(query, m.hidden_size, false);
  }
  sum += linear(d.kv_lora_rank + d.qk_pos_emb_head_dim, m.hidden_size, false);
  if (m.qk_layernorm) sum += norm_weights(m, d.kv_lora_rank);
  sum += linear(heads * (d.qk_head_dim + d.v_head_dim), d.kv_lora_rank, false);
  return sum + linear(m.hidden_size, heads * d.v_head_dim, m.add_bias_linear);
}

/// Gated delta net: one input projection [q | k | v | z | b | a], a short convolution over q, k, v, one decay and one
/// step bias per value head, a gated norm and the output projection.
std::int64_t linear_attention(const ModelSpec& m, const LinearAttentionDescription& d) {
  const std::int64_t key = d.num_key_heads * d.key_head_dim, value = d.num_value_heads * d.value_head_dim;
  return linear(2 * key + 2 * value + 2 * d.num_value_heads, m.hidden_size, m.add_bias_linear) +
         (2 * key + value) * d.conv_kernel_dim + 2 * d.num_value_heads + d.value_head_dim +
         linear(m.hidden_size, value, m.add_bias_linear);
}

std::int64_t softmax_attention(const ModelSpec& m, const DescribedSpec& d) {
  const std::int64_t gate = d.attention_output_gate ? m.attention_width() : 0;
  std::int64_t sum = linear(m.qkv_rows() + gate, m.hidden_size, m.has_qkv_bias()) +
                     linear(m.hidden_size, m.attention_width(), m.add_bias_linear);
  if (m.qk_layernorm) sum += 2 * norm_weights(m, m.kv_channels);
  return sum;
}

bool is_linear_attention(const DescribedSpec& d, std::int64_t layer) {
  return !d.linear_attention.variant.empty() && d.linear_attention.freq.value_or(1) > 0 &&
         (layer + 1) % d.linear_attention.freq.value_or(1) != 0;
}

std::int64_t attention(const ModelSpec& m, const DescribedSpec& d, std::int64_t layer) {
  if (is_linear_attention(d, layer)) return linear_attention(m, d.linear_attention);
  return d.mla.enabled ? latent_attention(m, d.mla) : softmax_attention(m, d);
}

bool has_experts(const DescribedSpec& d, std::int64_t layer) {
  const auto& layers = d.moe.moe_layers;
  return d.moe.num_experts && layer < static_cast<std::int64_t>(layers.size()) &&
         layers[static_cast<std::size_t>(layer)] != 0;
}

std::int64_t experts(const ModelSpec& m, const MoeDescription& d) {
  const std::int64_t ffn = d.ffn_hidden_size.value_or(m.ffn_hidden_size), count = *d.num_experts;
  std::int64_t sum = linear(count, m.hidden_size, m.add_bias_linear);  // router
  if (d.latent_size) {
    ModelSpec inside = m;
    inside.hidden_size = *d.latent_size;
    sum += count * mlp(inside, ffn, m.add_bias_linear) + 2 * m.hidden_size * *d.latent_size;
  } else {
    sum += count * mlp(m, ffn, m.add_bias_linear);
  }
  if (d.shared_expert_intermediate_size) sum += mlp(m, *d.shared_expert_intermediate_size, m.add_bias_linear);
  if (d.shared_expert_gate) sum += m.hidden_size;
  return sum;
}

std::int64_t layer_weights(const ModelSpec& m, const DescribedSpec& d, std::int64_t layer) {
  return 2 * norm_weights(m, m.hidden_size) + attention(m, d, layer) +
         (has_experts(d, layer) ? experts(m, d.moe) : mlp(m, m.ffn_hidden_size, m.add_bias_linear));
}

/// Products of one token through the attention of a layer, without those of the scores.
double attention_products(const ModelSpec& m, const DescribedSpec& d) {
  const double h = static_cast<double>(m.hidden_size), n = static_cast<double>(m.num_attention_heads);
  if (!d.mla.enabled) {
    const double query = static_cast<double>(m.attention_width());
    const double key = static_cast<double>(m.num_query_groups * m.kv_channels);
    return h * (query + 2 * key + (d.attention_output_gate ? query : 0)) + query * h;
  }
  const double nope = static_cast<double>(d.mla.qk_head_dim), position = static_cast<double>(d.mla.qk_pos_emb_head_dim);
  const double value = static_cast<double>(d.mla.v_head_dim), kv = static_cast<double>(d.mla.kv_lora_rank);
  double sum = kv * (h + n * (nope + value) + 1) + h * position + n * value * h;
  if (d.mla.q_lora_rank)
    sum += static_cast<double>(*d.mla.q_lora_rank) * (h + n * (nope + position) + 1);
  else
    sum += h * n * (nope + position);
  return sum;
}

double mlp_products(const ModelSpec& m, const DescribedSpec& d, std::int64_t layer) {
  const double h = static_cast<double>(m.hidden_size), matrices = m.gated_linear_unit ? 3 : 2;
  if (!has_experts(d, layer)) return h * static_cast<double>(m.ffn_hidden_size) * matrices;
  const double ffn = static_cast<double>(d.moe.ffn_hidden_size.value_or(m.ffn_hidden_size));
  const double routed = ffn * static_cast<double>(d.moe.router_topk) * matrices;
  const double shared = static_cast<double>(d.moe.shared_expert_intermediate_size.value_or(0)) * matrices;
  if (!d.moe.latent_size) return h * (routed + shared);
  const double latent = static_cast<double>(*d.moe.latent_size);
  return h * (routed * latent / h + 2 * latent + shared);
}

}  // namespace

ModelCount count_parameters(const ModelSpec& m, const DescribedSpec& d) {
  ModelCount count;
  count.embedding = m.padded_vocab_size * m.hidden_size;
  if (m.position_embedding == PositionEmbedding::learned_absolute)
    count.embedding += m.max_position_embeddings * m.hidden_size;
  count.head = m.tied() ? 0 : m.padded_vocab_size * m.hidden_size;
  count.final_norm = norm_weights(m, m.hidden_size);
  for (std::int64_t layer = 0; layer < m.num_layers; ++layer) count.layers.push_back(layer_weights(m, d, layer));
  if (d.mtp_num_layers > 0 && m.num_layers > 0) {
    const std::int64_t around = 3 * norm_weights(m, m.hidden_size) + 2 * m.hidden_size * m.hidden_size;
    count.multi_token_prediction = d.mtp_num_layers * (around + layer_weights(m, d, m.num_layers - 1));
  }
  count.total = std::accumulate(count.layers.begin(), count.layers.end(),
                                count.embedding + count.head + count.final_norm + count.multi_token_prediction);
  const std::int64_t padding = m.padded_vocab_size - m.vocab_size;
  count.unpadded_vocab = count.total - padding * m.hidden_size * (m.tied() ? 1 : 2);
  return count;
}

double flops_per_step(const ModelSpec& m, std::int64_t num_sequences, const DescribedSpec& d) {
  const double sequences = static_cast<double>(num_sequences), length = static_cast<double>(m.seq_length);
  const double tokens = sequences * length, h = static_cast<double>(m.hidden_size);
  // Scores and their product with the values, each over half of the square; latent attention has two widths.
  double core = static_cast<double>(m.attention_width());
  if (d.mla.enabled) {
    core = static_cast<double>(m.num_attention_heads) *
           static_cast<double>(d.mla.qk_head_dim + d.mla.qk_pos_emb_head_dim + d.mla.v_head_dim) / 2;
  }
  double products = 0;
  for (std::int64_t layer = 0; layer < m.num_layers + d.mtp_num_layers; ++layer)
    products += attention_products(m, d) + mlp_products(m, d, std::min(layer, m.num_layers - 1));
  const double mtp = static_cast<double>(d.mtp_num_layers);
  products += mtp * (3 * h + 2 * h * h) + h * static_cast<double>(m.padded_vocab_size) * (mtp + 1);
  const double layers = static_cast<double>(m.num_layers) + mtp;
  return 6 * tokens * products + 6 * layers * core * tokens * length;
}

}  // namespace megatron::spec
