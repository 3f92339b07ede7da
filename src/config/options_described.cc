#include "config/option_table.h"

namespace megatron::config {
namespace {

constexpr const char* kExperts = "mixture of experts is not built in this version | a dense model";
constexpr const char* kLatent = "multi-latent attention is not built in this version | --group-query-attention";
constexpr const char* kLinearAttention = "linear attention is not built in this version | softmax attention";

std::vector<Option> expert_rows() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o).unbuilt(kExperts)); };
  add(value(
          "--num-experts", [](Draft & d) -> auto& { return d.described.moe.num_experts; }, "Experts of an MoE layer.")
          .at_least(1)
          .at_most(1e5));
  add(value(
      "--moe-layer-freq", [](Draft & d) -> auto& { return d.described.moe.layer_freq; },
      "Which layers hold experts: every Nth, or a list such as ([0]*3+[1]*58)."));
  add(value(
          "--moe-ffn-hidden-size", [](Draft & d) -> auto& { return d.described.moe.ffn_hidden_size; },
          "Width of an expert; unset: --ffn-hidden-size.")
          .at_least(1)
          .at_most(1e7));
  add(value(
          "--moe-shared-expert-intermediate-size",
          [](Draft & d) -> auto& { return d.described.moe.shared_expert_intermediate_size; },
          "Width of the expert that every token uses.")
          .at_least(1));
  add(flag(
      "--moe-shared-expert-gate", [](Draft & d) -> auto& { return d.described.moe.shared_expert_gate; },
      "A gate on the shared expert."));
  add(value(
          "--moe-router-topk", [](Draft & d) -> auto& { return d.described.moe.router_topk; }, "Experts of each token.")
          .at_least(1));
  add(flag(
      "--moe-router-pre-softmax", [](Draft & d) -> auto& { return d.described.moe.router_pre_softmax; },
      "Softmax before the choice of experts."));
  add(text_choice(
      "--moe-router-score-function", [](Draft & d) -> auto& { return d.described.moe.router_score_function; },
      {"softmax", "sigmoid", "sqrtsoftplus"}, "Scores of the router."));
  add(flag(
      "--moe-router-enable-expert-bias", [](Draft & d) -> auto& { return d.described.moe.router_enable_expert_bias; },
      "A bias per expert balances the load."));
  add(value(
          "--moe-latent-size", [](Draft & d) -> auto& { return d.described.moe.latent_size; },
          "Width between dispatch and experts.")
          .at_least(1));
  add(value(
          "--expert-model-parallel-size", [](Draft & d) -> auto& { return d.run.parallel.expert_parallel; },
          "Ranks that share the experts.")
          .at_least(1)
          .at_most(65536));
  add(value(
          "--expert-tensor-parallel-size", [](Draft & d) -> auto& { return d.described.moe.expert_tensor_parallel; },
          "Tensor parallel size inside an expert.")
          .at_least(1)
          .at_most(65536));
  return rows;
}

std::vector<Option> attention_rows() {
  std::vector<Option> rows;
  auto latent = [&rows](Option&& o) { rows.push_back(std::move(o).unbuilt(kLatent)); };
  auto linear = [&rows](Option&& o) { rows.push_back(std::move(o).unbuilt(kLinearAttention)); };
  latent(flag(
      "--multi-latent-attention", [](Draft & d) -> auto& { return d.described.mla.enabled; },
      "Keys and values from a latent vector."));
  latent(value(
             "--q-lora-rank", [](Draft & d) -> auto& { return d.described.mla.q_lora_rank; }, "Rank of the queries.")
             .at_least(1));
  latent(
      value(
          "--kv-lora-rank", [](Draft & d) -> auto& { return d.described.mla.kv_lora_rank; }, "Rank of keys and values.")
          .at_least(1));
  latent(value(
             "--qk-head-dim", [](Draft & d) -> auto& { return d.described.mla.qk_head_dim; },
             "Head size without positions.")
             .at_least(1));
  latent(value(
             "--qk-pos-emb-head-dim", [](Draft & d) -> auto& { return d.described.mla.qk_pos_emb_head_dim; },
             "Part of a head that rotates.")
             .at_least(1));
  latent(value(
             "--v-head-dim", [](Draft & d) -> auto& { return d.described.mla.v_head_dim; }, "Head size of values.")
             .at_least(1));
  linear(text_choice(
      "--experimental-attention-variant", [](Draft & d) -> auto& { return d.described.linear_attention.variant; },
      {"gdn", "gdn2", "dsa", "gated_delta_net"}, "Linear or sparse attention."));
  linear(value(
             "--linear-attention-freq", [](Draft & d) -> auto& { return d.described.linear_attention.freq; },
             "Every Nth layer keeps softmax attention.")
             .at_least(1));
  linear(value(
             "--linear-conv-kernel-dim",
             [](Draft & d) -> auto& { return d.described.linear_attention.conv_kernel_dim; },
             "Width of the short convolution.")
             .at_least(1));
  linear(value(
             "--linear-key-head-dim", [](Draft & d) -> auto& { return d.described.linear_attention.key_head_dim; },
             "Head size of keys.")
             .at_least(1));
  linear(value(
             "--linear-value-head-dim", [](Draft & d) -> auto& { return d.described.linear_attention.value_head_dim; },
             "Head size of values.")
             .at_least(1));
  linear(value(
             "--linear-num-key-heads", [](Draft & d) -> auto& { return d.described.linear_attention.num_key_heads; },
             "Key heads.")
             .at_least(1));
  linear(value(
             "--linear-num-value-heads",
             [](Draft & d) -> auto& { return d.described.linear_attention.num_value_heads; }, "Value heads.")
             .at_least(1));
  rows.push_back(flag(
                     "--attention-output-gate", [](Draft & d) -> auto& { return d.described.attention_output_gate; },
                     "A gate on the attention output.")
                     .unbuilt("the attention output gate is not built in this version | leave it out"));
  return rows;
}

std::vector<Option> layout_rows() {
  std::vector<Option> rows;
  rows.push_back(value(
                     "--context-parallel-size", [](Draft & d) -> auto& { return d.run.parallel.context_parallel; },
                     "Ranks that share each sequence.")
                     .at_least(1)
                     .at_most(65536)
                     .unbuilt("context parallelism is not built in this version | --sequence-parallel"));
  rows.push_back(value(
                     "--mtp-num-layers", [](Draft & d) -> auto& { return d.described.mtp_num_layers; },
                     "Layers that predict further tokens.")
                     .at_least(0)
                     .unbuilt("multi-token prediction is not built in this version | leave it out"));
  return rows;
}

}  // namespace

std::vector<Option> described_options() {
  std::vector<Option> rows;
  for (auto part : {expert_rows, attention_rows, layout_rows})
    for (Option& row : part()) rows.push_back(std::move(row));
  for (Option& row : rows) row.topic = "Described, not built";
  return rows;
}

}  // namespace megatron::config
