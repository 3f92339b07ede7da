#include "support/golden_model.h"

#include <algorithm>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>

#include "support/run_ranks.h"

namespace megatron::testing {
namespace {

using nlohmann::json;

spec::Activation activation_of(const json& config) {
  const std::string name = config.at("activation_func");
  if (name == "silu") return spec::Activation::silu;
  if (name == "squared_relu") return spec::Activation::squared_relu;
  // The reference computes the tanh form where bias and GELU are fused.
  return config.at("bias_activation_fusion").get<bool>() ? spec::Activation::gelu_tanh : spec::Activation::gelu_erf;
}

void set_positions(const json& record, spec::ModelSpec& model) {
  const json &config = record.at("config"), &options = record.at("model");
  const std::string kind = options.at("position_embedding_type");
  model.position_embedding = kind == "rope"   ? spec::PositionEmbedding::rope
                             : kind == "none" ? spec::PositionEmbedding::none
                                              : spec::PositionEmbedding::learned_absolute;
  model.rotary_base = options.value("rotary_base", 10000.0);
  model.rotary_percent = options.value("rotary_percent", 1.0);
  model.rotary_interleaved = config.value("rotary_interleaved", false);
  model.rotary_seq_len_interpolation_factor = options.value("seq_len_interpolation_factor", 1.0);
  if (!options.value("rope_scaling", false)) return;
  model.rope_scaling.emplace();
  model.rope_scaling->factor = options.value("rope_scaling_factor", 8.0);
}

spec::ModelSpec model_of(const json& record) {
  const json& config = record.at("config");
  spec::ModelSpec model;
  model.num_layers = config.at("num_layers");
  model.hidden_size = config.at("hidden_size");
  model.num_attention_heads = config.at("num_attention_heads");
  model.ffn_hidden_size = config.at("ffn_hidden_size");
  model.kv_channels = config.value("kv_channels", std::int64_t{0});
  if (config.contains("num_query_groups") && !config.at("num_query_groups").is_null())
    model.num_query_groups = config.at("num_query_groups");
  model.seq_length = model.max_position_embeddings = record.at("options").at("max_sequence_length");
  model.vocab_size = record.at("options").at("vocab_size");
  model.normalization =
      config.at("normalization") == "RMSNorm" ? spec::Normalization::rms_norm : spec::Normalization::layer_norm;
  model.activation = activation_of(config);
  model.gated_linear_unit = config.value("gated_linear_unit", false);
  model.add_bias_linear = config.at("add_bias_linear");
  model.add_qkv_bias = config.value("add_qkv_bias", false);
  model.qk_layernorm = config.value("qk_layernorm", false);
  model.apply_query_key_layer_scaling = config.value("apply_query_key_layer_scaling", false);
  model.untie_embeddings_and_output_weights = !record.at("model").at("share_embeddings_and_output_weights").get<bool>();
  model.hidden_dropout = config.at("hidden_dropout");
  model.attention_dropout = config.at("attention_dropout");
  set_positions(record, model);
  return model;
}

}  // namespace

std::vector<GoldenCase> read_golden_cases(const std::string& path, const std::vector<std::string>& names) {
  std::ifstream stream(path);
  const json records = json::parse(stream);
  std::vector<GoldenCase> cases;
  for (const std::string& name : names) {
    const auto it = std::find_if(records.begin(), records.end(), [&](const json& r) { return r.at("name") == name; });
    MEGATRON_CHECK(it != records.end(), "no case ", name, " in ", path);
    cases.push_back({name, model_of(*it)});
  }
  return cases;
}

nn::MicroBatch golden_batch(const checkpoint::SafetensorsFile& file) {
  const std::vector<std::int64_t>& shape = file.info("in.tokens").shape;
  nn::MicroBatch batch;
  batch.num_tokens = shape[0] * shape[1];
  batch.ids = file.read_int64("in.tokens");
  batch.labels = file.read_int64("in.labels");
  batch.loss_mask = file.read_float("in.loss_mask");
  batch.tokens.position = file.read_int64("in.position_ids");
  for (std::int64_t t = 0; t < batch.num_tokens; ++t) {
    batch.tokens.sample_index.push_back(t / shape[1]);
    if (batch.tokens.position[static_cast<std::size_t>(t)] == 0) batch.sequence_starts.push_back(t);
  }
  batch.sequence_starts.push_back(batch.num_tokens);
  return batch;
}

WholeTensors golden_tensors(const checkpoint::SafetensorsFile& file, const std::string& prefix) {
  WholeTensors tensors;
  for (const checkpoint::TensorInfo& info : file.tensors())
    if (info.name.rfind(prefix, 0) == 0) tensors[info.name.substr(prefix.size())] = file.read_double(info.name);
  return tensors;
}

std::vector<double> sample_major(const std::vector<double>& values, std::int64_t length, std::int64_t samples) {
  const std::int64_t width = static_cast<std::int64_t>(values.size()) / (length * samples);
  std::vector<double> out;
  out.reserve(values.size());
  for (std::int64_t b = 0; b < samples; ++b)
    for (std::int64_t s = 0; s < length; ++s) {
      const auto row = values.begin() + (s * samples + b) * width;
      out.insert(out.end(), row, row + width);
    }
  return out;
}

namespace {

void collect_rows(std::vector<double>& whole, const Tensor& rows, std::int64_t first_row, std::int64_t num_rows) {
  const std::vector<double> values = to_doubles(rows);
  const std::int64_t width = rows.size(1);
  whole.resize(static_cast<std::size_t>(num_rows * width));
  std::copy(values.begin(), values.end(), whole.begin() + first_row * width);
}

/// Logits of all tokens: a forward pass of its own, as inference makes it.
Tensor all_logits(mesh::Rank& rank, model::Stage& stage, const spec::RunSpec& run, const nn::MicroBatch& batch,
                  DType dtype) {
  const mesh::Group& pp = rank.mesh.pp;
  nn::WeightGradQueue queue(rank.exec, nullptr);
  nn::Pass pass{rank, rank.exec, batch, nn::Mode::evaluate, false, queue};
  Tensor input;
  if (!rank.mesh.holds_first_stage()) {
    input = rank.exec.empty({batch.shard_end - batch.shard_begin, run.model.hidden_size}, dtype);
    input = pp.communicator()->receive(input, pp.rank() - 1, "hidden").wait();
  }
  if (rank.mesh.holds_last_stage()) return stage.forward_logits(pass, input, 0, batch.num_tokens);
  model::StageStash stash;
  Tensor output = stage.forward(pass, input, stash);
  MEGATRON_CHECK(stash.contents == nullptr, "a pass without stash kept something");
  pp.communicator()->send(output, pp.rank() + 1, "hidden").wait();
  return Tensor();
}

void run_rank(mesh::Rank& rank, const spec::RunSpec& run, const WholeTensors& parameters, nn::MicroBatch batch,
              DType dtype, std::mutex& mutex, Gatherer& gatherer, GoldenOutput& output) {
  place_batch(batch, rank, run.parallel.sequence_parallel);
  auto built = model::build_model(rank, run, dtype);
  model::Stage* const stage = &built->chunk(0);
  scatter_parameters(*stage, parameters);
  allocate_gradients(rank.exec, stage->parameters());
  StepOptions options;
  options.observe_hidden = [&](std::int64_t, std::int64_t layer, const Tensor& hidden) {
    const std::scoped_lock lock(mutex);
    const auto index = static_cast<std::size_t>(layer);
    if (output.hidden.size() <= index) output.hidden.resize(index + 1);
    collect_rows(output.hidden[index], hidden, batch.shard_begin, batch.num_tokens);
  };
  const auto losses = run_stage_step(rank, *stage, run, {batch}, options, dtype);
  gatherer.add_gradients(*stage);
  const Tensor logits = all_logits(rank, *stage, run, batch, dtype);
  if (!rank.mesh.holds_last_stage()) return;
  const std::scoped_lock lock(mutex);
  if (!output.losses.empty()) MEGATRON_CHECK(output.losses == losses[0], "tensor-parallel ranks differ in the loss");
  output.losses = losses[0];
  output.logits = to_doubles(logits);
}

}  // namespace

GoldenOutput run_golden(const GoldenCase& golden, const spec::ParallelSpec& parallel, const WholeTensors& parameters,
                        const nn::MicroBatch& batch, DType dtype) {
  const spec::RunSpec run = make_run(golden.model, parallel);
  GoldenOutput output;
  Gatherer gatherer;
  std::mutex mutex;
  run_mesh(parallel, [&](mesh::Rank& rank) { run_rank(rank, run, parameters, batch, dtype, mutex, gatherer, output); });
  output.gradients = std::move(gatherer.tensors);
  double mask_sum = 0;
  for (const float weight : batch.loss_mask) mask_sum += static_cast<double>(weight);
  for (auto& [name, values] : output.gradients)
    for (double& value : values) value /= mask_sum;
  return output;
}

}  // namespace megatron::testing
