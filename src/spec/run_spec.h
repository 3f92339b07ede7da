// The whole description of one run: what `config` makes from options and everything else reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "spec/model_spec.h"
#include "spec/optimizer_spec.h"
#include "spec/parallel_spec.h"
#include "spec/recompute_spec.h"

namespace megatron::spec {

/// --rampup-batch-size: from `start` in steps of `increment` to `target` over `samples`.
struct BatchRampup {
  std::int64_t start = 0, increment = 0, samples = 0, target = 0;
};
/// --step-batch-size-schedule: the global batch from `first_sample` on.
struct BatchStep {
  std::int64_t first_sample = 0, global_batch = 0;
};

struct BatchSpec {
  std::int64_t micro_batch_size = 0;
  std::int64_t global_batch_size = 0;  // derived default: micro_batch_size · dp; of a changing batch the last one
  std::int64_t num_micro_batches = 0;  // derived: per step and data-parallel rank; of a changing batch the largest
  std::int64_t samples_per_round = 0;  // derived: micro_batch_size · dp
  std::optional<BatchRampup> rampup;   // which batch a step has: spec/batch_schedule.h
  std::vector<BatchStep> batch_steps;  // ascending, the first at sample 0; empty: none
  std::optional<std::int64_t> train_iters, train_samples;
  std::int64_t eval_iters = 100;
  std::optional<std::int64_t> eval_interval;
  std::optional<std::int64_t> eval_micro_batch_size, eval_global_batch_size;
  std::optional<std::int64_t> exit_interval;
  std::optional<double> exit_duration_minutes;
  bool skip_train = false;
};

enum class DataloaderType : std::uint8_t { single, cyclic };

struct DataSpec {
  std::vector<std::string> data_path;  // [w1 p1 w2 p2 …] or [p1 p2 …], as given
  std::vector<std::string> train_data_path, valid_data_path, test_data_path;
  std::optional<std::string> data_args_path;            // file that holds what --data-path takes
  std::optional<std::string> per_split_data_args_path;  // JSON file {train, valid, test}
  std::vector<std::string> train_data;                  // raw text: files and folders
  std::vector<std::string> json_keys = {"text"};        // of raw text
  std::optional<std::string> data_cache_path;
  std::optional<std::int64_t> num_dataset_builder_threads;  // unset: all cores
  bool full_validation = false, multiple_validation_sets = false;
  std::string split = "969, 30, 1";
  bool split_given = false;
  bool mock_data = false;
  std::string tokenizer_type;  // "ByteLevel", "NullTokenizer", "GPT2BPETokenizer", …; empty: not given
  std::optional<std::int64_t> null_tokenizer_eod_id, null_tokenizer_pad_id;
  /// Where a tokenizer's files are and what is read from them; empty: not given.
  std::string vocab_file, merge_file, tokenizer_model, tiktoken_pattern;
  std::vector<std::string> tokenizer_special_tokens;
  std::int64_t tiktoken_num_special_tokens = 1000, vocab_extra_ids = 0;
  bool tokenizer_sentencepiece_legacy = false, tokenizer_sentencepiece_ignore_extra_whitespaces = true;
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false;
  DataloaderType dataloader_type = DataloaderType::single;
  double mid_level_dataset_surplus = 0.005;
};

struct CheckpointSpec {
  std::optional<std::string> save, load;
  std::optional<std::int64_t> save_interval;
  std::optional<std::int64_t> ckpt_step;
  bool finetune = false;
  bool no_save_optim = false, no_load_optim = false;
  bool exit_on_missing_checkpoint = false;
};

struct LogSpec {
  std::int64_t log_interval = 100;
  bool log_throughput = false;
  bool log_params_norm = false;
  bool log_num_zeros_in_grad = false;
  std::optional<std::string> log_json;
  bool check_for_nan = true;
  /// The steps after iteration `profile_step_start` up to `profile_step_end` are recorded with either of the first two.
  bool profile = false;              // print where their time goes
  std::optional<std::string> trace;  // file that gets their events
  std::int64_t profile_step_start = 10, profile_step_end = 12;
};

/// The factor on the loss that keeps float16 gradients above the smallest numbers (arXiv 1710.03740).
struct LossScaleSpec {
  std::optional<double> constant;  // unset: dynamic
  double initial = 4294967296.0, minimum = 1.0;
  std::int64_t window = 1000;   // steps without an overflow before the scale doubles
  std::int64_t hysteresis = 2;  // overflows before it halves
};

struct NumericsSpec {
  std::uint64_t seed = 1234;
  /// Of weights and of activations: float32, bfloat16 or float16. Main weights, gradients and optimizer state are
  /// float32 always.
  DType params_dtype = DType::float32;
  bool fp32_residual_connection = false;  // the residual stream is float32 beside 16-bit layers
  bool grad_reduce_in_bf16 = false;       // gradients are rounded for the reduction over data parallelism
  LossScaleSpec loss_scale;               // with float16

  DType residual_dtype() const { return fp32_residual_connection ? DType::float32 : params_dtype; }
};

/// Faults that a run injects into itself (tests, `--inject-fault`): see comm/fault_plan.h for the text form.
struct FaultSpec {
  std::optional<std::string> inject_fault;
};

struct RunSpec {
  ModelSpec model;
  ParallelSpec parallel;
  RecomputeSpec recompute;
  OptimizerSpec optimizer;
  BatchSpec batch;
  DataSpec data;
  CheckpointSpec checkpoint;
  LogSpec log;
  NumericsSpec numerics;
  FaultSpec fault;
  std::optional<std::string> distributed_backend;  // "local", "mpi"; unset: by launcher
};

}  // namespace megatron::spec
