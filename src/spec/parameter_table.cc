#include "spec/parameter_table.h"

#include "base/check.h"

namespace megatron::spec {
namespace {

class Table {
 public:
  explicit Table(const RunSpec& run)
      : run_(run), m_(run.model), tp_(run.parallel.tensor_parallel), last_(run.parallel.placement().num_stages() - 1) {}

  std::vector<ParameterRow> fill() {
    add_embedding();
    std::int64_t layer = 0;
    for (int stage = 0; stage <= last_; ++stage) layer = add_layers(stage, layer);
    add_head();
    return std::move(rows_);
  }

  std::vector<ParameterRow> fill_stage(int stage, std::int64_t first_layer) {
    if (stage == 0)
      add_embedding();
    else if (stage == last_ && m_.tied())
      add_words();
    add_layers(stage, first_layer);
    if (stage == last_) add_head();
    return std::move(rows_);
  }

 private:
  void add(std::string name, std::string cut, Sharding sharding) {
    rows_.push_back({std::move(name), std::move(cut), std::move(sharding), stages_});
  }

  Sharding table() const { return row_shard(2, m_.vocab_size, m_.padded_vocab_size, m_.hidden_size, 0, tp_); }

  void add_words() {
    stages_ = {0};
    if (m_.tied() && last_ > 0) stages_.push_back(last_);
    add("embedding.word_embeddings.weight", "rows", table());
  }

  void add_embedding() {
    add_words();
    stages_ = {0};
    if (m_.position_embedding == PositionEmbedding::learned_absolute)
      add("embedding.position_embeddings.weight", "whole",
          replicated(2, m_.max_position_embeddings, m_.hidden_size, 0));
  }

  /// Returns the number of the layer behind them.
  std::int64_t add_layers(int stage, std::int64_t first) {
    stages_ = {stage};
    const std::int64_t end = first + run_.parallel.layers_per_stage[static_cast<std::size_t>(stage)];
    for (std::int64_t layer = first; layer < end; ++layer) add_layer(str_cat("decoder.layers.", layer, "."));
    return end;
  }

  void add_head() {
    stages_ = {last_};
    add_norm("decoder.final_layernorm", m_.hidden_size);
    if (!m_.tied()) add("output_layer.weight", "rows", table());
  }

  void add_norm(const std::string& name, std::int64_t width) {
    add(name + ".weight", "whole", replicated(1, width, 1, 0));
    if (m_.normalization == Normalization::layer_norm) add(name + ".bias", "whole", replicated(1, width, 1, 0));
  }

  void add_qkv(const std::string& name) {
    auto shard = [this](int dims, std::int64_t cols) {
      return qkv_shard(dims, m_.num_attention_heads, m_.num_query_groups, m_.kv_channels, cols, 0, tp_);
    };
    add(name + ".weight", "heads", shard(2, m_.hidden_size));
    if (m_.has_qkv_bias()) add(name + ".bias", "heads", shard(1, 1));
  }

  void add_fc1(const std::string& name) {
    const std::int64_t ffn = m_.ffn_hidden_size;
    auto shard = [&](int dims, std::int64_t cols) {
      return m_.gated_linear_unit ? gated_shard(dims, ffn, cols, 0, tp_) : row_shard(dims, ffn, ffn, cols, 0, tp_);
    };
    const char* cut = m_.gated_linear_unit ? "gate and up rows" : "rows";
    add(name + ".weight", cut, shard(2, m_.hidden_size));
    if (m_.add_bias_linear) add(name + ".bias", cut, shard(1, 1));
  }

  void add_row_linear(const std::string& name, std::int64_t in) {
    add(name + ".weight", "columns", column_shard(m_.hidden_size, in, 0, tp_));
    if (m_.add_bias_linear) add(name + ".bias", "whole", replicated(1, m_.hidden_size, 1, 0));
  }

  void add_layer(const std::string& at) {
    add_norm(at + "input_layernorm", m_.hidden_size);
    add_qkv(at + "self_attention.linear_qkv");
    if (m_.qk_layernorm) {
      add_norm(at + "self_attention.q_layernorm", m_.kv_channels);
      add_norm(at + "self_attention.k_layernorm", m_.kv_channels);
    }
    add_row_linear(at + "self_attention.linear_proj", m_.attention_width());
    add_norm(at + "pre_mlp_layernorm", m_.hidden_size);
    add_fc1(at + "mlp.linear_fc1");
    add_row_linear(at + "mlp.linear_fc2", m_.ffn_hidden_size);
  }

  const RunSpec& run_;
  const ModelSpec& m_;
  int tp_, last_;
  std::vector<int> stages_;
  std::vector<ParameterRow> rows_;
};

}  // namespace

std::vector<ParameterRow> parameter_table(const RunSpec& run) { return Table(run).fill(); }

std::vector<ParameterRow> stage_parameters(const RunSpec& run, int stage, std::int64_t first_layer) {
  return Table(run).fill_stage(stage, first_layer);
}

}  // namespace megatron::spec
