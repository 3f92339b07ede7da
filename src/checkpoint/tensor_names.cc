#include "checkpoint/tensor_names.h"

#include <array>
#include <string_view>

namespace megatron::checkpoint {
namespace {

struct Spelling {
  std::string_view ours, fused;
};
// The fused form is what layer specs with Transformer Engine's norm-and-linear modules write.
constexpr std::array<Spelling, 4> kFusedNorms{{
    {".input_layernorm.weight", ".self_attention.linear_qkv.layer_norm_weight"},
    {".input_layernorm.bias", ".self_attention.linear_qkv.layer_norm_bias"},
    {".pre_mlp_layernorm.weight", ".mlp.linear_fc1.layer_norm_weight"},
    {".pre_mlp_layernorm.bias", ".mlp.linear_fc1.layer_norm_bias"},
}};

std::string replace_end(const std::string& text, std::string_view from, std::string_view to) {
  return text.substr(0, text.size() - from.size()) + std::string(to);
}

}  // namespace

std::vector<std::string> spellings(const std::string& name) {
  std::vector<std::string> names{name};
  for (const Spelling& spelling : kFusedNorms) {
    if (name.ends_with(spelling.ours)) names.push_back(replace_end(name, spelling.ours, spelling.fused));
    if (name.ends_with(spelling.fused)) names.push_back(replace_end(name, spelling.fused, spelling.ours));
  }
  return names;
}

bool has_vocabulary_rows(const std::string& name) {
  return name.ends_with("embedding.word_embeddings.weight") || name.ends_with("output_layer.weight");
}

}  // namespace megatron::checkpoint
