// Parts of Megatron-LM models and layouts that are described and counted but not built: experts, latent attention,
// multi-token prediction, linear attention, interleaving, context parallelism.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megatron::spec {

struct MoeDescription {
  std::optional<std::int64_t> num_experts;
  std::string layer_freq = "1";  // N: every Nth layer from layer 0; or a list such as ([0]*3+[1]*58)
  std::optional<std::int64_t> ffn_hidden_size;
  std::optional<std::int64_t> shared_expert_intermediate_size;
  bool shared_expert_gate = false;
  std::int64_t router_topk = 2;
  bool router_pre_softmax = false;
  std::string router_score_function = "softmax";
  bool router_enable_expert_bias = false;
  std::optional<std::int64_t> latent_size;
  std::optional<std::int64_t> expert_tensor_parallel;  // unset: the tensor parallel size
  std::vector<char> moe_layers;                        // derived: 1 for each layer with experts
};

struct MlaDescription {
  bool enabled = false;
  std::optional<std::int64_t> q_lora_rank;
  std::int64_t kv_lora_rank = 32;
  std::int64_t qk_head_dim = 128;
  std::int64_t qk_pos_emb_head_dim = 64;
  std::int64_t v_head_dim = 128;
};

struct LinearAttentionDescription {
  std::string variant;               // "gated_delta_net", …; empty: none
  std::optional<std::int64_t> freq;  // every freq-th layer is full attention
  std::int64_t conv_kernel_dim = 4, key_head_dim = 128, value_head_dim = 128, num_key_heads = 16, num_value_heads = 32;
};

struct InterleavingDescription {
  std::optional<std::int64_t> layers_per_virtual_stage;
  std::optional<std::int64_t> virtual_stages_per_rank;
  std::optional<std::int64_t> micro_batch_group_size;
  bool overlap_p2p = true;
};

struct DescribedSpec {
  MoeDescription moe;
  MlaDescription mla;
  LinearAttentionDescription linear_attention;
  InterleavingDescription interleaving;
  std::int64_t mtp_num_layers = 0;
  bool attention_output_gate = false;

  /// Layers of each pipeline rank and chunk; derived. Empty where no split exists.
  std::vector<std::vector<std::int64_t>> layers_per_stage;
  std::optional<std::int64_t> virtual_pipeline_size;
};

}  // namespace megatron::spec
