// A run while it is being read: the RunSpec so far, and the options whose meaning depends on others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "spec/described_spec.h"
#include "spec/run_spec.h"

namespace megatron::config {

/// Options that several fields of the RunSpec depend on; `derive` resolves them.
struct Switches {
  bool swiglu = false, geglu = false, gated_linear_unit = false, squared_relu = false, openai_gelu = false;
  bool bias_gelu_fusion = true;
  std::string activation_func;  // ours; empty: by the switches
  bool group_query_attention = false;
  std::int64_t num_query_groups = 1;
  bool use_rotary_position_embeddings = false;
  bool add_position_embedding = true;
  bool use_rope_scaling = false;
  double rope_scaling_factor = 8.0;
  bool bf16 = false, fp16 = false;
  bool pad_vocab_size = true;
  std::optional<std::int64_t> vocab_size, padded_vocab_size;
  std::optional<std::int64_t> world_size, encoder_num_layers;
  std::string no_weight_decay_cond_type;
  std::optional<std::string> split;
  std::string distributed_backend = "nccl";
  std::string pipeline_schedule;  // empty: by the virtual stages
  bool decrease_batch_size_if_needed = false;
  std::vector<std::string> rampup_batch_size;  // three whole numbers
  std::optional<std::string> step_batch_size_schedule;
  std::string dataloader_type;
  bool recompute_activations = false;
  std::vector<std::string> recompute_modules;
};

struct Draft {
  spec::RunSpec run;
  spec::DescribedSpec described;
  Switches switches;
};

}  // namespace megatron::config
