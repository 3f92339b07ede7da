// Cases as data: a model, two ways to train it, and what they promise each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compare.h"
#include "support/small_run.h"

namespace megatron::parity {

/// 24 heads of size 8 (wider than the hidden size) with few key/value groups, so that TP 2, 3, 4 and 8 cut heads, share
/// groups or both; a vocabulary that no TP divides; four layers for four stages; 24 tokens per sequence, which every TP
/// divides.
struct ModelChoice {
  bool llama = false;
  bool tied = true;
  std::int64_t groups = 24;
  bool qk_norm = false;
  DType dtype = DType::float32;
};

constexpr std::int64_t kVocab = 61;
constexpr std::int64_t kLength = 24;
constexpr std::int64_t kGlobalBatch = 8;

/// How a model is trained: everything that must not change its numbers.
struct Setup {
  testing::Layout layout;
  spec::PipelineSchedule schedule = spec::PipelineSchedule::one_f_one_b;
  int threads = 1;
  std::uint64_t perturb_seed = 0;
  std::optional<std::int64_t> bucket_size = {};  // elements
  std::optional<std::int64_t> first_stage_layers = {};
  int chunks = 1;  // virtual stages per pipeline rank
  spec::RecomputeSpec recompute = {};
  spec::ShardingStrategy sharding = spec::ShardingStrategy::no_shard;
  bool overlap = true;
  bool reduce_every_microbatch = false;
  std::string pipeline_layout = {};  // empty: an even split
};

struct TrainingCase {
  std::string name;
  ModelChoice model;
  Setup a, b;
  Level level = Level::close;
};

inline std::string setup_text(const Setup& setup) {
  return str_cat(
      testing::layout_text(setup.layout),
      setup.schedule == spec::PipelineSchedule::one_f_one_b ? ""
                                                            : str_cat(" schedule", static_cast<int>(setup.schedule)),
      setup.threads > 1 ? str_cat(" threads", setup.threads) : "", setup.perturb_seed != 0 ? " perturbed" : "",
      setup.chunks > 1 ? str_cat(" chunks", setup.chunks) : "",
      setup.recompute.granularity != spec::RecomputeGranularity::none ? " recompute" : "",
      setup.sharding != spec::ShardingStrategy::no_shard ? str_cat(" zero", static_cast<int>(setup.sharding)) : "",
      setup.overlap ? "" : " no overlap", setup.reduce_every_microbatch ? " every micro-batch" : "",
      setup.pipeline_layout.empty() ? "" : " ", setup.pipeline_layout);
}

inline std::string model_text(const ModelChoice& model) {
  return str_cat(model.llama ? "llama" : "gpt2", model.tied ? " tied" : " untied", " groups", model.groups,
                 model.qk_norm ? " qk-norm" : "", " ", dtype_name(model.dtype));
}

/// The run without its layout: dropout on, Adam with Megatron-LM's epsilon, clipping.
inline spec::RunSpec base_run(const ModelChoice& choice) {
  spec::RunSpec run = testing::small_run(choice.llama);
  spec::ModelSpec& model = run.model;
  model.num_layers = 4;
  model.hidden_size = choice.llama ? 48 : 32;
  model.num_attention_heads = 24;
  model.kv_channels = 8;
  model.num_query_groups = choice.groups;
  model.ffn_hidden_size = 48;
  model.seq_length = kLength;
  model.vocab_size = kVocab;
  model.make_vocab_size_divisible_by = 1;
  model.untie_embeddings_and_output_weights = !choice.tied;
  model.qk_layernorm = choice.qk_norm;
  model.hidden_dropout = model.attention_dropout = 0.1;
  run.numerics.params_dtype = choice.dtype;
  model.init_method_std = 0.08;  // keys and queries of ordinary size: their norms do not amplify rounding
  run.batch.global_batch_size = kGlobalBatch;
  run.optimizer.adam_eps = 1e-8;
  run.optimizer.clip_grad = 0.5;
  return run;
}

/// Weights that differ from sample to sample: a sample without any trained token, one with a single one, and fractions
/// and gaps in the others.
inline float uneven_mask(std::int64_t sample, std::int64_t place) {
  if (sample % 8 == 2) return 0.0F;
  if (sample % 8 == 5) return place == 11 ? 0.75F : 0.0F;
  const auto words = philox4x32(make_philox_key(11, RandomPurpose::test, 0),
                                {static_cast<std::uint32_t>(sample), static_cast<std::uint32_t>(place), 0, 0});
  const float weights[] = {0.0F, 0.25F, 0.5F, 1.0F, 1.0F, 1.0F, 1.5F, 1.0F};
  return weights[words[0] % 8];
}

inline spec::RunSpec run_of(spec::RunSpec run, const Setup& setup) {
  run.parallel.schedule = setup.schedule;
  run.parallel.threads_per_rank = setup.threads;
  run.parallel.ddp_bucket_size = setup.bucket_size;
  run.parallel.decoder_first_pipeline_num_layers = setup.first_stage_layers;
  run.parallel.virtual_chunks = setup.chunks;
  if (setup.schedule == spec::PipelineSchedule::zb_v) run.parallel.placement_kind = spec::PlacementKind::v;
  run.parallel.use_megatron_fsdp = setup.sharding != spec::ShardingStrategy::no_shard;
  run.parallel.data_parallel_sharding_strategy = setup.sharding;
  run.parallel.overlap = setup.overlap;
  run.parallel.reduce_every_microbatch = setup.reduce_every_microbatch;
  if (!setup.pipeline_layout.empty()) run.parallel.pipeline_layout = setup.pipeline_layout;
  run.recompute = setup.recompute;
  return testing::complete(std::move(run), setup.layout);
}

inline testing::SmallResult train_setup(const spec::RunSpec& base, const Setup& setup,
                                        testing::SmallOptions options = {}) {
  if (options.train == nullptr) options.train = testing::make_sequences(512, kLength, kVocab, uneven_mask);
  options.perturb_seed = setup.perturb_seed;
  return testing::train_small(run_of(base, setup), options);
}

}  // namespace megatron::parity
