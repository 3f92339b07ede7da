#include <algorithm>

#include "config/option_table.h"

namespace megatron::config {

namespace {

Option rampup_row() {
  Option o = list(
      "--rampup-batch-size", [](Draft & d) -> auto& { return d.switches.rampup_batch_size; },
      "A global batch that grows: START INCREMENT SAMPLES, in equal parts of SAMPLES up to --global-batch-size.");
  o.set = [](Draft& d, const std::vector<std::string>& words) -> std::string {
    constexpr const char* kForm = "takes three whole numbers: start, increment, samples";
    if (words.size() != 3) return kForm;
    for (const std::string& word : words)
      if (const std::string problem = integer_problem(word); !problem.empty())
        return str_cat(kForm, "; ", word, " ", problem);
    d.switches.rampup_batch_size = words;
    return {};
  };
  return o;
}

std::vector<Option> precision_rows() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(flag(
      "--bf16", [](Draft & d) -> auto& { return d.switches.bf16; },
      "bfloat16 weights and activations; main weights, gradients, optimizer state and sums in float32."));
  add(flag(
      "--fp16", [](Draft & d) -> auto& { return d.switches.fp16; }, "The same in float16, with a loss scale."));
  add(flag(
      "--fp32-residual-connection", [](Draft & d) -> auto& { return d.run.numerics.fp32_residual_connection; },
      "The residual stream stays in float32 beside 16-bit layers."));
  add(flag(
      "--grad-reduce-in-bf16", [](Draft & d) -> auto& { return d.run.numerics.grad_reduce_in_bf16; },
      "Gradients are rounded to bfloat16 for the reduction over data parallelism, added in float32 and rounded "
      "again."));
  add(value(
          "--loss-scale", [](Draft & d) -> auto& { return d.run.numerics.loss_scale.constant; },
          "With --fp16: a constant factor on the loss; unset: one that follows overflows.")
          .above(0));
  add(value(
          "--initial-loss-scale", [](Draft & d) -> auto& { return d.run.numerics.loss_scale.initial; },
          "With --fp16: where the factor on the loss starts.")
          .above(0));
  add(value(
          "--min-loss-scale", [](Draft & d) -> auto& { return d.run.numerics.loss_scale.minimum; },
          "With --fp16: below which it does not fall.")
          .above(0));
  add(value(
          "--loss-scale-window", [](Draft & d) -> auto& { return d.run.numerics.loss_scale.window; },
          "With --fp16: steps without an overflow before it doubles.")
          .in("steps")
          .at_least(1));
  add(value(
          "--hysteresis", [](Draft & d) -> auto& { return d.run.numerics.loss_scale.hysteresis; },
          "With --fp16: overflows before it halves.")
          .in("overflows")
          .at_least(1));
  return rows;
}

}  // namespace

std::vector<Option> batch_options() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(value(
          "--micro-batch-size", [](Draft & d) -> auto& { return d.run.batch.micro_batch_size; },
          "Sequences of one forward pass of a rank.")
          .in("sequences")
          .at_least(1)
          .at_most(1e9));
  add(value(
          "--global-batch-size", [](Draft & d) -> auto& { return d.run.batch.global_batch_size; },
          "Sequences of one step; unset: micro-batch x data parallel size.")
          .in("sequences")
          .at_least(1)
          .at_most(1e9));
  add(rampup_row());
  add(value(
      "--step-batch-size-schedule", [](Draft & d) -> auto& { return d.switches.step_batch_size_schedule; },
      "Global batches by trained tokens (not samples), TOKENS:BATCH ...: \"0:768 250B:1536\" (K, M, B, T: powers of "
      "1000); "
      "tokens become samples by division by --seq-length, rounded down."));
  add(flag(
      "--decrease-batch-size-if-needed", [](Draft & d) -> auto& { return d.switches.decrease_batch_size_if_needed; },
      "Round the global batch down to what the ranks can share."));
  add(value(
          "--train-iters", [](Draft & d) -> auto& { return d.run.batch.train_iters; },
          "Length of the run; 0: only evaluate, as with --skip-train.")
          .in("iterations")
          .at_least(0));
  add(value(
          "--train-samples", [](Draft & d) -> auto& { return d.run.batch.train_samples; },
          "Length of the run in samples, instead of --train-iters.")
          .in("samples")
          .at_least(0));
  add(value(
          "--eval-iters", [](Draft & d) -> auto& { return d.run.batch.eval_iters; }, "Batches of one evaluation.")
          .in("iterations")
          .at_least(0));
  add(value(
          "--eval-interval", [](Draft & d) -> auto& { return d.run.batch.eval_interval; },
          "Iterations between evaluations; unset: at the end only.")
          .in("iterations")
          .at_least(1));
  add(value(
          "--eval-micro-batch-size", [](Draft & d) -> auto& { return d.run.batch.eval_micro_batch_size; },
          "Micro-batch of evaluation; unset: --micro-batch-size.")
          .in("sequences")
          .at_least(1));
  add(value(
          "--eval-global-batch-size", [](Draft & d) -> auto& { return d.run.batch.eval_global_batch_size; },
          "Global batch of evaluation; unset: --global-batch-size.")
          .in("sequences")
          .at_least(1));
  add(value(
          "--exit-interval", [](Draft & d) -> auto& { return d.run.batch.exit_interval; },
          "Stop when the iteration is a multiple of this.")
          .in("iterations")
          .at_least(1));
  add(value(
          "--exit-duration-in-mins", [](Draft & d) -> auto& { return d.run.batch.exit_duration_minutes; },
          "Stop after this time.")
          .in("minutes")
          .above(0));
  add(flag(
      "--skip-train", [](Draft & d) -> auto& { return d.run.batch.skip_train; }, "Only evaluate."));
  for (Option& row : rows) row.topic = "Batch and length";
  return rows;
}

std::vector<Option> data_options() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(list(
      "--data-path", [](Draft & d) -> auto& { return d.run.data.data_path; },
      "Prefix of a .bin/.idx pair, or a blend: weight prefix weight prefix ..."));
  add(list(
      "--train-data-path", [](Draft & d) -> auto& { return d.run.data.train_data_path; },
      "The same for training only."));
  add(list(
      "--valid-data-path", [](Draft & d) -> auto& { return d.run.data.valid_data_path; },
      "The same for validation only."));
  add(list(
      "--test-data-path", [](Draft & d) -> auto& { return d.run.data.test_data_path; }, "The same for testing only."));
  for (Option& row : rows) row.accepts_empty_list = true;
  add(list(
          "--train-data", [](Draft & d) -> auto& { return d.run.data.train_data; },
          "Raw text (.jsonl, .txt, .gz, .zst, folders), tokenised into --data-cache-path at the first start.")
          .our_own());
  add(list(
          "--json-keys", [](Draft & d) -> auto& { return d.run.data.json_keys; },
          "Keys of --train-data whose strings are documents.")
          .our_own());
  add(value(
      "--data-args-path", [](Draft & d) -> auto& { return d.run.data.data_args_path; },
      "File that holds what --data-path takes."));
  add(value(
      "--per-split-data-args-path", [](Draft & d) -> auto& { return d.run.data.per_split_data_args_path; },
      "JSON file {train, valid, test} of what the paths per split take."));
  add(value(
      "--data-cache-path", [](Draft & d) -> auto& { return d.run.data.data_cache_path; },
      "Folder for the tokens of --train-data and for indices, which are the same without it."));
  add(value(
          "--num-dataset-builder-threads", [](Draft & d) -> auto& { return d.run.data.num_dataset_builder_threads; },
          "Threads that build the indices of a blend; unset: all cores.")
          .at_least(1));
  add(flag(
      "--full-validation", [](Draft & d) -> auto& { return d.run.data.full_validation; },
      "Each evaluation reads the whole validation data once, instead of --eval-iters batches."));
  add(flag(
      "--multiple-validation-sets", [](Draft & d) -> auto& { return d.run.data.multiple_validation_sets; },
      "Each file of the validation data is evaluated on its own."));
  add(value(
      "--split", [](Draft & d) -> auto& { return d.switches.split; },
      "Shares of training, validation and test documents; unset: 969, 30, 1."));
  add(flag(
      "--mock-data", [](Draft & d) -> auto& { return d.run.data.mock_data; }, "Made-up data, no files."));
  for (Option& row : tokenizer_options()) add(std::move(row));
  add(flag(
      "--reset-position-ids", [](Draft & d) -> auto& { return d.run.data.reset_position_ids; },
      "Positions start anew after an end mark."));
  add(flag(
      "--reset-attention-mask", [](Draft & d) -> auto& { return d.run.data.reset_attention_mask; },
      "Documents of one sample do not see each other."));
  add(flag(
      "--eod-mask-loss", [](Draft & d) -> auto& { return d.run.data.eod_mask_loss; }, "No loss on end marks."));
  add(text_choice(
          "--dataloader-type", [](Draft & d) -> auto& { return d.switches.dataloader_type; }, {"single", "cyclic"},
          "single: one pass in order; cyclic: shuffled passes.")
          .unbuilt_values({"external"}));
  add(value(
          "--mid-level-dataset-surplus", [](Draft & d) -> auto& { return d.run.data.mid_level_dataset_surplus; },
          "Share of samples that each part of a blend holds in reserve.")
          .at_least(0));
  for (Option& row : rows) row.topic = "Data";
  return rows;
}

std::vector<Option> checkpoint_options() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(value(
      "--save", [](Draft & d) -> auto& { return d.run.checkpoint.save; }, "Folder to write checkpoints to."));
  add(value(
          "--save-interval", [](Draft & d) -> auto& { return d.run.checkpoint.save_interval; },
          "Iterations between checkpoints.")
          .alias("--persistent-save-interval")
          .in("iterations")
          .at_least(1));
  add(value(
      "--load", [](Draft & d) -> auto& { return d.run.checkpoint.load; }, "Folder to resume from."));
  add(value(
          "--ckpt-step", [](Draft & d) -> auto& { return d.run.checkpoint.ckpt_step; },
          "Iteration to load; unset: the latest.")
          .at_least(0));
  add(flag(
      "--finetune", [](Draft & d) -> auto& { return d.run.checkpoint.finetune; },
      "Load weights only and start at iteration 0."));
  add(flag(
      "--no-save-optim", [](Draft & d) -> auto& { return d.run.checkpoint.no_save_optim; },
      "Do not write optimizer state."));
  add(flag(
      "--no-load-optim", [](Draft & d) -> auto& { return d.run.checkpoint.no_load_optim; },
      "Do not read optimizer state."));
  add(flag(
      "--exit-on-missing-checkpoint", [](Draft & d) -> auto& { return d.run.checkpoint.exit_on_missing_checkpoint; },
      "An empty --load folder is an error instead of a fresh start."));
  for (Option& row : rows) row.topic = "Checkpoints";
  return rows;
}

std::vector<Option> log_options() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(value(
          "--log-interval", [](Draft & d) -> auto& { return d.run.log.log_interval; }, "Iterations between log lines.")
          .in("iterations")
          .at_least(1));
  add(value(
          "--log-json", [](Draft & d) -> auto& { return d.run.log.log_json; },
          "File that gets one JSON object per step.")
          .our_own());
  add(flag(
      "--log-throughput", [](Draft & d) -> auto& { return d.run.log.log_throughput; },
      "Megatron's throughput field in the log line."));
  add(flag(
      "--log-params-norm", [](Draft & d) -> auto& { return d.run.log.log_params_norm; },
      "Norm of the weights in the log line."));
  add(flag(
      "--log-num-zeros-in-grad", [](Draft & d) -> auto& { return d.run.log.log_num_zeros_in_grad; },
      "Number of zero gradients in the log line."));
  add(flag(
      "--profile", [](Draft & d) -> auto& { return d.run.log.profile; },
      "Record some steps and print each kernel's share of their time beside the machine's limits."));
  add(value(
          "--trace", [](Draft & d) -> auto& { return d.run.log.trace; },
          "Record some steps of all ranks into this file, for ui.perfetto.dev or chrome://tracing.")
          .our_own());
  add(value(
          "--profile-step-start", [](Draft & d) -> auto& { return d.run.log.profile_step_start; },
          "Iteration after which steps are recorded.")
          .in("iterations")
          .at_least(0));
  add(value(
          "--profile-step-end", [](Draft & d) -> auto& { return d.run.log.profile_step_end; },
          "Last iteration that is recorded.")
          .in("iterations")
          .at_least(1));
  add(off_flag(
      "--no-check-for-nan-in-loss-and-grad", "check_for_nan_in_loss_and_grad",
      [](Draft & d) -> auto& { return d.run.log.check_for_nan; }, "Do not end the run at the first NaN or infinity."));
  add(value(
          "--seed", [](Draft & d) -> auto& { return d.run.numerics.seed; }, "Seed of weights, dropout and data order.")
          .at_least(1));
  for (Option& row : precision_rows()) rows.push_back(std::move(row));
  add(value(
          "--inject-fault", [](Draft & d) -> auto& { return d.run.fault.inject_fault; },
          "Fault that the run does to itself, for tests.")
          .our_own());
  for (Option& row : rows) row.topic = "Logging, seed and numbers";
  return rows;
}

}  // namespace megatron::config
