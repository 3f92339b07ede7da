#include "train/trainer.h"

#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/units.h"
#include "kernels/peak.h"
#include "model/build.h"
#include "schedule/batch_check.h"
#include "schedule/lr_schedule.h"
#include "spec/batch_schedule.h"
#include "train/batch_feeder.h"
#include "train/batches.h"
#include "train/evaluations.h"
#include "train/loss_scaler.h"
#include "train/machine.h"
#include "train/not_finite.h"
#include "train/run_measure.h"
#include "train/schedule_tuner.h"
#include "train/startup.h"
#include "train/state_io.h"
#include "train/step_recorder.h"
#include "train/step_summary.h"
#include "train/stored_lr_schedule.h"

namespace megatron::train {
namespace {

/// A step that has begun and is not closed.
struct OpenStep {
  StepReport report;
  PendingSummary summary;
  pipeline::StepOutput output;
  std::int64_t num_micro_batches = 0;
  bool counts = false;  // its bytes on the wire are those of any step
};

class Trainer {
 public:
  Trainer(comm::RankContext& context, const Process& process, RunListener* listener, const TrainHooks& hooks)
      : context_(context),
        process_(process),
        run_(process.run),
        listener_(context.rank() == 0 ? listener : nullptr),
        hooks_(hooks),
        parts_(context, process.run, RankParts::Use::training),
        schedule_(spec::trains(process.run.batch) ? schedule::make_lr_schedule(process.run.optimizer, process.run.batch)
                                                  : schedule::LrSchedule{}),
        batches_(process.run.batch) {}

  TrainOutcome run();

 private:
  void set_up();
  void start_batch();
  void retune();
  void train();
  /// Up to the point where only what all ranks share is missing.
  void begin_step();
  /// The rest of the step; true if the run ends with it.
  bool close_step();
  /// With updates ahead: nothing needs the step that has begun to be closed before the next one begins.
  bool may_stay_open() const;
  void fill_report();
  std::vector<nn::MicroBatch> next_batches();
  pipeline::StepOutput compute(const std::vector<nn::MicroBatch>& batches, std::int64_t iteration);
  void update(StepSummary& summary, const std::string& seen, StepReport& report);
  optim::UpdateResult update_weights(const StepReport& report);
  pipeline::Interruption::Verdict settle_step_before();
  /// 0 is none.
  void end_at(int signal);
  void save();
  void measure_peak();
  void report_recording();
  TraceSpan phase(const char* name) { return {parts_.exec().trace(), SpanKind::phase, name}; }
  bool should_end(const StepSummary& summary);
  void say(const std::string& text) {
    if (listener_ != nullptr) listener_->line(text);
  }
  /// The first sample of the next step.
  std::int64_t next_sample() const {
    return position_.consumed_samples + (open_.has_value() ? open_->report.global_batch : 0);
  }
  int pending_signal() const { return process_.stop_signal == nullptr ? 0 : process_.stop_signal->load(); }
  bool is_float16() const { return run_.numerics.params_dtype == DType::float16; }
  /// Before a step: tells the engine the scale of its gradients.
  void set_backward_scale(std::int64_t num_micro_batches);
  /// After an update of float16 training; false if the run must end.
  bool follow_overflow(const optim::UpdateResult& result, StepReport& report);
  bool out_of_time() const {
    return run_.batch.exit_duration_minutes.has_value() &&
           monotonic_seconds() - start_seconds_ > 60.0 * *run_.batch.exit_duration_minutes;
  }

  comm::RankContext& context_;
  const Process& process_;
  const spec::RunSpec& run_;
  RunListener* listener_;
  const TrainHooks& hooks_;
  RankParts parts_;
  StepRecorder recorder_{parts_, context_};
  std::optional<RunMeasure> measure_;            // once a step has begun
  std::optional<StepRecorder::Step> recording_;  // while a step goes on
  schedule::LrSchedule schedule_;
  std::unique_ptr<data::SampleOrder> order_;
  std::unique_ptr<BatchFeeder> feeder_;  // once there is an order
  const spec::BatchSchedule batches_;
  spec::StepBatch batch_;                   // of the latest step that has begun
  std::int64_t program_micro_batches_ = 0;  // what program_ was made for
  std::vector<schedule::Instruction> program_;
  LossScaler scaler_{run_.numerics.loss_scale};
  double backward_scale_ = 1.0;  // what seeds backward beside the mask
  ScheduleTuner tuner_{parts_};
  Evaluations evaluations_{parts_, context_, process_, listener_};
  RunPosition position_;
  std::optional<OpenStep> open_;
  StepSummary summary_;            // of the latest closed step
  double step_start_seconds_ = 0;  // of the step to be closed next
  bool ended_ = false;
  TrainOutcome outcome_;
  std::int64_t saved_iteration_ = -1;
  bool measure_peak_ = process_.measure_peak;
  double start_seconds_ = monotonic_seconds();
};

TrainOutcome Trainer::run() {
  set_up();
  if (hooks_.after_setup) hooks_.after_setup(parts_);
  if (!spec::trains(run_.batch)) {
    say(run_.batch.skip_train
            ? "training is skipped (--skip-train)"
            : str_cat("training is skipped: ", run_.batch.train_iters ? "--train-iters " : "--train-samples ",
                      run_.batch.train_iters.value_or(run_.batch.train_samples.value_or(0)), " is less than one step"));
  } else {
    train();
    if (recorder_.asked()) report_recording();
  }
  const bool failed = outcome_.reason == EndReason::not_finite;
  if (run_.checkpoint.save.has_value() && position_.iteration > 0 && spec::trains(run_.batch) && !failed) save();
  if (outcome_.reason == EndReason::finished) end_at(evaluations_.at_end(position_));
  parts_.finish_gathers();
  if (measure_.has_value()) {
    const metrics::RunFigures figures = measure_->collect();
    if (listener_ != nullptr) listener_->figures(figures);
  }
  if (hooks_.at_end) {
    parts_.complete_values();
    hooks_.at_end(parts_);
  }
  outcome_.iteration = position_.iteration;
  outcome_.consumed_samples = position_.consumed_samples;
  return outcome_;
}

void Trainer::set_up() {
  for (const std::string& line : describe_layout(parts_)) say(line);
  std::optional<LoadedState> loaded;
  if (run_.checkpoint.load.has_value()) loaded = load_state(parts_);
  if (loaded.has_value()) {
    position_ = loaded->position;
    if (is_float16() && position_.loss_scaler.has_value()) scaler_.restore(*position_.loss_scaler);
    for (const std::string& note : loaded->notes) say(note);
    if (loaded->schedule.has_value() && spec::trains(run_.batch)) {
      const spec::OptimizerSpec& options = run_.optimizer;
      schedule_ = schedule::resume(schedule_, without_idle_lengths(*loaded->schedule, schedule_),
                                   options.override_opt_param_scheduler, options.use_checkpoint_opt_param_scheduler);
    }
    say(str_cat("loaded ", loaded->directory, loaded->with_optimizer ? "" : " (weights only)", ": iteration ",
                position_.iteration, ", next sample index ", position_.consumed_samples));
  } else {
    if (run_.checkpoint.load.has_value())
      say(str_cat(*run_.checkpoint.load, " holds no checkpoint: starting at iteration 0"));
    model::initialize_parameters(
        parts_.rank(), parts_.model().parameters(), run_.numerics.seed,
        [this](nn::Parameter& parameter, const Tensor& values) { parts_.set_weights(parameter, values); });
    say(str_cat("weights initialised with seed ", run_.numerics.seed));
    if (const std::string warning = earlier_run_warning(run_); !warning.empty()) say(warning);
  }
  const bool has_steps = spec::trains(run_.batch) && position_.iteration < total_iterations(run_);
  if (has_steps) claim_memory(parts_);
  for (const std::string& line : describe_resources(parts_)) say(line);
  saved_iteration_ = position_.iteration;
  if (!spec::trains(run_.batch)) return;
  if (process_.data.train == nullptr)
    throw ConfigError(
        "there are no training samples: give --data-path, --train-data or --mock-data, and a --split whose first share "
        "is not 0");
  if (has_steps) {
    schedule::check_batches(run_, position_.consumed_samples);
    if (run_.checkpoint.save.has_value()) check_room_to_save(parts_);
    order_ = data::make_order(run_.data, *process_.data.train, run_.batch.micro_batch_size, parts_.mesh().dp.size(),
                              position_.consumed_samples);
    feeder_ = std::make_unique<BatchFeeder>([this](const StepSamples& step) {
      return make_micro_batches(*process_.data.train, *order_, step, parts_.mesh(), run_.parallel.sequence_parallel);
    });
  }
}

/// The batch of the next step, and the instructions for its micro-batches.
void Trainer::start_batch() {
  batch_ = batches_.at(next_sample());
  if (batch_.num_micro_batches == program_micro_batches_) return;
  program_ = tuner_.program(batch_.num_micro_batches);
  program_micro_batches_ = batch_.num_micro_batches;
}

/// Takes the program for the times that were measured.
void Trainer::retune() {
  program_ = tuner_.program(batch_.num_micro_batches);
  for (const std::string& line : tuner_.describe()) say(line);
}

void Trainer::train() {
  const std::int64_t last = total_iterations(run_);
  if (position_.iteration >= last)
    say(str_cat("nothing to train: the checkpoint stands at iteration ", position_.iteration, " of ", last));
  if (position_.iteration < last) measure_.emplace(parts_, context_);
  step_start_seconds_ = monotonic_seconds();
  while (!ended_ && position_.iteration < last) {
    begin_step();
    if (!ended_ && !may_stay_open()) ended_ = close_step();
  }
}

bool Trainer::may_stay_open() const {
  if (parts_.post_validation() == nullptr || recorder_.asked() || measure_peak_ || run_.log.log_params_norm)
    return false;
  // A step that stands alone shows what a step sends.
  if (!measure_->knows_step_of(open_->num_micro_batches)) return false;
  const std::int64_t iteration = open_->report.iteration;
  const auto due = [iteration](const std::optional<std::int64_t>& interval) {
    return interval.has_value() && iteration % *interval == 0;
  };
  return iteration < total_iterations(run_) && !due(run_.batch.eval_interval) && !due(run_.batch.exit_interval) &&
         !due(run_.checkpoint.save_interval);
}

bool Trainer::close_step() {
  fill_report();
  StepReport& report = open_->report;
  update(summary_, open_->output.first_bad_tensor, report);
  const bool counts = open_->counts && !report.skipped && !report.nan;
  measure_->end_step(open_->output, open_->num_micro_batches, counts);
  const double now = monotonic_seconds();
  report.step_seconds = now - std::exchange(step_start_seconds_, now);
  const StepReport closed = report;
  open_.reset();
  recording_.reset();
  if (std::exchange(measure_peak_, false)) measure_peak();
  if (listener_ != nullptr) listener_->step(closed);
  if (outcome_.reason == EndReason::not_finite) return true;
  if (recorder_.complete()) report_recording();
  if (hooks_.after_step) hooks_.after_step(parts_, closed);
  if (summary_.stop_signal() == 0 && run_.batch.eval_interval.has_value() &&
      position_.iteration % *run_.batch.eval_interval == 0)
    end_at(evaluations_.validate(position_, /*at_end=*/false));
  if (outcome_.reason == EndReason::signal || should_end(summary_)) return true;
  if (run_.checkpoint.save.has_value() && run_.checkpoint.save_interval.has_value() &&
      position_.iteration % *run_.checkpoint.save_interval == 0)
    save();
  step_start_seconds_ = monotonic_seconds();
  return false;
}

std::vector<nn::MicroBatch> Trainer::next_batches() {
  const TraceSpan span = phase("data");
  const StepSamples step{next_sample(), batch_.global_batch, run_.batch.micro_batch_size};
  const std::int64_t iteration = position_.iteration + (open_.has_value() ? 2 : 1);
  std::optional<StepSamples> next;
  if (iteration < total_iterations(run_)) {
    const std::int64_t first = step.first_sample + step.global_batch;
    next = StepSamples{first, batches_.at(first).global_batch, step.micro_batch_size};
  }
  return feeder_->take(step, next);
}

pipeline::Interruption::Verdict Trainer::settle_step_before() {
  using Verdict = pipeline::Interruption::Verdict;
  open_->counts = false;  // the next step has begun
  ended_ = close_step();
  if (ended_) return Verdict::abandon;
  measure_->begin_step();
  set_backward_scale(program_micro_batches_);
  parts_.grad_buffer().start_step(program_micro_batches_);
  return parts_.post_validation()->redone_by_any() ? Verdict::start_again : Verdict::go_on;
}

pipeline::StepOutput Trainer::compute(const std::vector<nn::MicroBatch>& batches, std::int64_t iteration) {
  pipeline::StepOutput output;
  if (open_.has_value()) {
    const pipeline::Interruption before{tuner_.repeatable(), [this] { return settle_step_before(); }};
    output = parts_.engine().run_step(program_, batches, &parts_.grad_buffer(), iteration, &before);
    if (ended_) return output;
  } else {
    set_backward_scale(std::ssize(batches));
    {
      const TraceSpan span = phase("start gradients");
      parts_.grad_buffer().start_step(std::ssize(batches));
    }
    output = parts_.engine().run_step(program_, batches, &parts_.grad_buffer(), iteration);
  }
  const TraceSpan span = phase("complete gradients");
  parts_.grad_buffer().finish_step();
  return output;
}

void Trainer::begin_step() {
  const std::int64_t iteration = position_.iteration + (open_.has_value() ? 2 : 1);
  recording_.emplace(recorder_, iteration);
  const double start = monotonic_seconds();
  context_.note_progress("step", iteration);
  start_batch();
  const bool alone = !open_.has_value();  // no step goes on beside this one
  if (alone) measure_->begin_step();
  const std::vector<nn::MicroBatch> batches = next_batches();
  const double data_end = monotonic_seconds();
  const pipeline::StepOutput output = compute(batches, iteration);
  if (ended_) return;
  const bool retunes = tuner_.observe(output.times);
  if (retunes) retune();

  open_.emplace();
  open_->output = output;
  open_->num_micro_batches = std::ssize(batches);
  open_->counts = alone && !retunes;
  StepReport& report = open_->report;
  report.iteration = iteration;
  report.global_batch = batch_.global_batch;
  report.loss_scale = is_float16() ? scaler_.scale() : 1.0;
  report.lr = schedule_.lr(position_.schedule_samples);
  report.weight_decay = schedule_.weight_decay(position_.schedule_samples);
  if (parts_.post_validation() != nullptr) {
    optim::StageOutcome outcome{{}, output.first_bad_tensor.empty()};
    for (const nn::MicroBatch& batch : batches)
      for (const float weight : batch.loss_mask) outcome.mask_sum.add(static_cast<double>(weight));
    const double update_start = monotonic_seconds();
    parts_.update_ahead({report.lr, report.weight_decay, 0.0, backward_scale_}, outcome);
    report.optimizer_seconds = monotonic_seconds() - update_start;
  }
  StepSummary local = local_summary(parts_.mesh(), output, pending_signal());
  local.exposed_seconds += parts_.take_exposed_seconds();
  local.data_seconds = data_end - start;
  local.out_of_time = out_of_time() ? 1 : 0;
  open_->summary = PendingSummary(parts_.rank(), local, "step_summary");
}

void Trainer::fill_report() {
  StepReport& report = open_->report;
  {
    const TraceSpan span = phase("summary");
    summary_ = open_->summary.wait();
  }
  const double ranks = parts_.mesh().world_size;
  report.consumed_samples = position_.consumed_samples + report.global_batch;
  report.trained_tokens = summary_.trained_tokens;
  report.computed_tokens = report.global_batch * run_.model.seq_length;
  report.token_sum = summary_.token_sum();
  report.loss = summary_.loss();
  report.forward_seconds = summary_.forward_seconds / ranks;
  report.backward_seconds = summary_.backward_seconds / ranks;
  report.exposed_seconds = summary_.exposed_seconds / ranks;
  report.data_seconds = summary_.data_seconds / ranks;
}

/// With updates ahead, what was guessed is settled; else all is done now.
optim::UpdateResult Trainer::update_weights(const StepReport& report) {
  if (parts_.post_validation() != nullptr) {
    optim::UpdateResult result = parts_.settle_update();
    measure_->pause();
    parts_.share_corrected_values();
    measure_->resume();
    return result;
  }
  return parts_.update({report.lr, report.weight_decay, report.token_sum, backward_scale_});
}

void Trainer::update(StepSummary& summary, const std::string& seen, StepReport& report) {
  const TraceSpan span = phase("optimizer");
  const bool check = run_.log.check_for_nan;
  report.nan = !std::isfinite(report.loss) || summary.bad_ranks > 0;
  const auto fail = [&](bool check_gradients) {
    outcome_.reason = EndReason::not_finite;
    outcome_.error = describe_not_finite(parts_, report.iteration, seen, check_gradients);
    report.nan = report.skipped = true;
  };
  const double start = monotonic_seconds();
  const optim::UpdateResult result =
      report.nan && check && parts_.post_validation() == nullptr ? optim::UpdateResult() : update_weights(report);
  if (parts_.post_validation() != nullptr) report.redone = parts_.post_validation()->redone_by_any();
  if (report.nan && check) return fail(false);
  report.skipped = result.skipped;
  if (report.token_sum == 0.0) {
    say(str_cat("iteration ", report.iteration, ": every target is masked, 0 trained tokens: no weight was changed"));
  } else {
    report.grad_norm = result.grad_norm;
    report.num_zeros = result.num_zeros;
    if (is_float16()) {
      if (!follow_overflow(result, report)) return;
    } else if (!std::isfinite(result.grad_norm) || !result.first_bad_gradient.empty()) {
      report.nan = true;
      if (check) return fail(true);
    }
  }
  if (run_.log.log_params_norm)
    report.params_norm = optim::global_parameter_norm(parts_.rank(), parts_.held_values(), parts_.holds_value_shards());
  report.optimizer_seconds += monotonic_seconds() - start;
  position_.iteration += 1;
  position_.consumed_samples = report.consumed_samples;
  position_.trained_tokens += report.trained_tokens;
  if (report.skipped) {
    ++position_.skipped_iterations;
  } else {
    position_.schedule_samples += report.global_batch;
  }
}

void Trainer::set_backward_scale(std::int64_t num_micro_batches) {
  if (!is_float16()) return;
  const std::int64_t tokens = num_micro_batches * run_.batch.micro_batch_size * run_.model.seq_length;
  backward_scale_ = std::ldexp(scaler_.scale(), -seed_shift(tokens));
  parts_.engine().set_backward_scale(backward_scale_);
}

bool Trainer::follow_overflow(const optim::UpdateResult& result, StepReport& report) {
  scaler_.update(result.skipped);
  report.loss_scale = scaler_.scale();  // as Megatron-LM logs it: what the next step uses
  if (!scaler_.exhausted()) return true;
  outcome_.reason = EndReason::not_finite;
  outcome_.error = str_cat("iteration ", report.iteration, ": gradients overflowed in ", LossScaler::kMaxOverflows,
                           " steps in a row at loss scale ", scaler_.scale(),
                           run_.numerics.loss_scale.constant.has_value() ? " (--loss-scale)" : " (--min-loss-scale)",
                           ", the last in ", result.first_bad_gradient);
  return false;
}

void Trainer::report_recording() {
  if (recorder_.finished()) return;
  if (!recorder_.recorded())
    return say(str_cat("no step was recorded: none of iterations ", run_.log.profile_step_start + 1, " to ",
                       run_.log.profile_step_end, " (--profile-step-start, --profile-step-end) was trained"));
  std::vector<std::string> lines;
  StepProfile profile = recorder_.finish(lines);
  for (const std::string& line : lines) say(line);
  if (!run_.log.profile) return;
  if (process_.measure_peak) profile.limits = measure_limits(parts_, 0.3);
  if (listener_ != nullptr) listener_->profile(profile);
}

void Trainer::measure_peak() {
  // All ranks at the same time, as in a step.
  parts_.mesh().world.barrier("matmul_peak");
  Tensor rate = parts_.exec().empty({1}, DType::float64, MemoryKind::communication);
  rate.data<double>()[0] = kernels::matmul_peak_within(parts_.exec(), 0.3, run_.numerics.params_dtype);
  if (!parts_.mesh().world.trivial()) rate = parts_.mesh().world.all_reduce(std::move(rate), "matmul_peak");
  if (listener_ != nullptr) listener_->peak(std::as_const(rate).data<double>()[0]);
}

bool Trainer::should_end(const StepSummary& summary) {
  if (summary.stop_signal() != 0) {
    end_at(summary.stop_signal());
    return true;
  }
  if (summary.out_of_time > 0) {
    outcome_.reason = EndReason::exit_duration;
    say(str_cat("exiting after ", *run_.batch.exit_duration_minutes, " minutes (--exit-duration-in-mins), iteration ",
                position_.iteration));
    return true;
  }
  if (run_.batch.exit_interval.has_value() && position_.iteration % *run_.batch.exit_interval == 0) {
    outcome_.reason = EndReason::exit_interval;
    say(str_cat("exiting at iteration ", position_.iteration, " (--exit-interval ", *run_.batch.exit_interval, ")"));
    return true;
  }
  return false;
}

void Trainer::end_at(int signal) {
  if (signal == 0) return;
  outcome_.reason = EndReason::signal;
  outcome_.signal = signal;
}

void Trainer::save() {
  if (saved_iteration_ == position_.iteration) return;
  const double start = monotonic_seconds();
  context_.note_progress("save", position_.iteration);
  if (is_float16()) position_.loss_scaler = scaler_.state();
  outcome_.saved_directory = save_state(parts_, process_, position_, schedule_);
  saved_iteration_ = position_.iteration;
  say(str_cat("saved ", outcome_.saved_directory, " (", format_bytes(checkpoint_bytes(parts_)), ") in ",
              format_duration(monotonic_seconds() - start)));
}

}  // namespace

std::int64_t total_iterations(const spec::RunSpec& run) {
  const std::optional<std::int64_t> iterations = spec::train_iterations(run.batch);
  if (iterations.has_value()) return *iterations;
  throw ConfigError("--train-iters is missing: give the number of iterations (or --train-samples)");
}

TrainOutcome run_training(comm::World& world, const Process& process, RunListener* listener, const TrainHooks& hooks) {
  TrainOutcome outcome;
  std::mutex mutex;  // every rank has the same outcome; the first one keeps it
  bool kept = false;
  world.run([&](comm::RankContext& context) {
    Trainer trainer(context, process, listener, hooks);
    TrainOutcome mine = trainer.run();
    const std::lock_guard<std::mutex> lock(mutex);
    if (!std::exchange(kept, true)) outcome = std::move(mine);
  });
  return outcome;
}

}  // namespace megatron::train
