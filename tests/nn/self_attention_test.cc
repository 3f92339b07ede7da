#include "nn/attention/self_attention.h"

#include "support/grad_check.h"

namespace megatron {
namespace {

struct Variant {
  std::int64_t heads = 4, groups = 4, head_size = 4;
  bool rope = false, interleaved = false, qk_norm = false;
  double rotary_percent = 1.0, dropout = 0.0;
  spec::Normalization norm = spec::Normalization::rms_norm;
};

testing::LayerCase attention_case(const Variant& v) {
  testing::LayerCase c;
  c.in_width = c.out_width = 8;
  c.make = [v](const nn::LayerSetup& setup) {
    spec::AttentionShape shape;
    shape.hidden = 8;
    shape.heads = v.heads;
    shape.groups = v.groups;
    shape.head_size = v.head_size;
    shape.qk_norm = v.qk_norm;
    shape.head_norm = {v.norm, v.head_size, 1e-5};
    shape.layout = {setup.tp.size(), setup.sequence_parallel};
    nn::SelfAttentionOptions options;
    options.dropout = v.dropout;
    if (v.rope) {
      spec::ModelSpec model;
      model.kv_channels = v.head_size;
      model.rotary_percent = v.rotary_percent;
      model.rotary_interleaved = v.interleaved;
      model.seq_length = 8;
      options.rope = std::make_shared<nn::RopeTable>(nn::make_rope_table(setup.allocator, model, setup.dtype));
    }
    return testing::bind_layer<nn::SelfAttention>(setup, std::string("attention"), shape, options);
  };
  return c;
}

TEST(SelfAttention, HasTheGradientOfWhatItComputes) {
  testing::check_layer_everywhere(attention_case({}));
  testing::check_layer(attention_case({}), 4, true);
}

TEST(SelfAttention, HasTheGradientWithGroups) {
  Variant v;
  v.groups = 2;
  v.head_size = 6;
  testing::check_layer_everywhere(attention_case(v));
}

// More ranks than key/value groups: two or four ranks hold copies of the same rows.
TEST(SelfAttention, HasTheGradientWithSharedGroups) {
  Variant v;
  v.groups = 1;
  v.rope = true;
  testing::check_layer_everywhere(attention_case(v));
  v.groups = 2;
  testing::check_layer(attention_case(v), 4, false);
  testing::check_layer(attention_case(v), 4, true);
}

TEST(SelfAttention, HasTheGradientWithRotaryEmbedding) {
  Variant v;
  v.rope = true;
  testing::check_layer_everywhere(attention_case(v));
  v.interleaved = true;
  v.groups = 2;
  v.rotary_percent = 0.5;
  testing::check_layer_everywhere(attention_case(v));
}

TEST(SelfAttention, HasTheGradientWithHeadNorms) {
  Variant v;
  v.qk_norm = true;
  v.rope = true;
  v.groups = 2;
  testing::check_layer_everywhere(attention_case(v));
  v.groups = 1;
  v.norm = spec::Normalization::layer_norm;
  testing::check_layer_everywhere(attention_case(v));
}

TEST(SelfAttention, HasTheGradientWithDropout) {
  Variant v;
  v.dropout = 0.3;
  v.groups = 2;
  testing::check_layer_everywhere(attention_case(v));
}

}  // namespace
}  // namespace megatron
