#include "metrics/log_line.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <ctime>

#include "base/units.h"

namespace megatron::metrics {
namespace {

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(text, sizeof(text), pattern, arguments);
  va_end(arguments);
  return text;
}

/// A number in the given form, or "nan", "inf", "-inf".
std::string number(const char* pattern, double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[64];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  std::snprintf(text, sizeof(text), pattern, value);
#pragma GCC diagnostic pop
  return text;
}

long long wide(std::int64_t value) { return value; }

void add_times(StepRecord& sum, const StepRecord& record) {
  sum.trained_tokens += record.trained_tokens;
  sum.computed_tokens += record.computed_tokens;
  sum.step_seconds += record.step_seconds;
  sum.forward_seconds += record.forward_seconds;
  sum.backward_seconds += record.backward_seconds;
  sum.exposed_communication_seconds += record.exposed_communication_seconds;
  sum.optimizer_seconds += record.optimizer_seconds;
  sum.data_seconds += record.data_seconds;
  sum.model_flops += record.model_flops;
}

double per_second(double amount, double seconds) { return seconds > 0.0 ? amount / seconds : 0.0; }

std::string flops_text(const StepRecord& sum, const LogConfig& config) {
  const double rate = per_second(sum.model_flops, sum.step_seconds);
  std::string text = " model TFLOP/s: " + number("%.3f", rate / 1e12) + " |";
  if (config.peak_flops_per_second > 0.0)
    text += " share of peak (%): " + number("%.1f", 100.0 * rate / config.peak_flops_per_second) + " |";
  return text;
}

std::string times_text(const StepRecord& sum, std::int64_t steps) {
  const double to_ms = 1000.0 / static_cast<double>(std::max<std::int64_t>(steps, 1));
  return " forward (ms): " + number("%.1f", sum.forward_seconds * to_ms) +
         " | backward (ms): " + number("%.1f", sum.backward_seconds * to_ms) +
         " | exposed communication (ms): " + number("%.1f", sum.exposed_communication_seconds * to_ms) +
         " | optimizer (ms): " + number("%.1f", sum.optimizer_seconds * to_ms) +
         " | data (ms): " + number("%.1f", sum.data_seconds * to_ms) + " |";
}

}  // namespace

std::string format_timestamp(std::chrono::system_clock::time_point time) {
  const auto since_epoch = std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(since_epoch / 1'000'000);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &local);
  return text + format(".%06lld", static_cast<long long>(since_epoch % 1'000'000));
}

void IntervalLog::add(const StepRecord& record) {
  last_ = record;
  add_times(sum_, record);
  ++steps_;
  skipped_ += record.skipped ? 1 : 0;
  nan_ += record.nan ? 1 : 0;
  redone_ += record.redone == true ? 1 : 0;
  all_masked_ += record.trained_tokens == 0 ? 1 : 0;
  // A NaN loss of a skipped step is shown all the same: it must not vanish from the log.
  if (record.trained_tokens > 0 && (!record.skipped || record.nan)) {
    loss_sum_ += record.loss;
    ++losses_;
  }
}

std::string IntervalLog::megatron_fields(std::chrono::system_clock::time_point now) const {
  std::string line = " [" + format_timestamp(now) + "]";
  line += format(" iteration %8lld/%8lld |", wide(last_.iteration), wide(config_.train_iters));
  line += format(" consumed samples: %12lld |", wide(last_.consumed_samples));
  line +=
      " elapsed time per iteration (ms): " + number("%.1f", 1000.0 * sum_.step_seconds / static_cast<double>(steps_)) +
      " |";
  if (config_.log_throughput) {
    const double rate = per_second(sum_.model_flops, sum_.step_seconds) / static_cast<double>(config_.world_size);
    line += " throughput per GPU (TFLOP/s/GPU): " + number("%.1f", rate / 1e12) + " |";
  }
  line += " learning rate: " + number("%.6E", last_.lr) + " |";
  line += format(" global batch size: %5lld |", wide(last_.global_batch_size));
  if (losses_ > 0) line += " lm loss: " + number("%.6E", loss_sum_ / static_cast<double>(losses_)) + " |";
  line += " loss scale: " + number("%.1f", last_.loss_scale) + " |";
  line += " grad norm: " + number("%.3f", last_.grad_norm) + " |";
  if (last_.num_zeros) line += format(" num zeros: %lld |", wide(*last_.num_zeros));
  if (last_.params_norm) line += " params norm: " + number("%.3f", *last_.params_norm) + " |";
  line += format(" number of skipped iterations: %3lld |", wide(skipped_));
  line += format(" number of nan iterations: %3lld |", wide(nan_));
  if (last_.redone) line += format(" number of redone iterations: %3lld |", wide(redone_));
  return line;
}

std::string IntervalLog::own_fields() const {
  std::string line = format(" trained tokens: %lld |", wide(sum_.trained_tokens));
  line += times_text(sum_, steps_);
  line +=
      " tokens/s: " + number("%.0f", per_second(static_cast<double>(sum_.trained_tokens), sum_.step_seconds)) + " |";
  line += flops_text(sum_, config_);
  const std::int64_t left = std::max<std::int64_t>(config_.train_iters - last_.iteration, 0);
  line +=
      " ETA: " + format_duration(sum_.step_seconds / static_cast<double>(steps_) * static_cast<double>(left)) + " |";
  if (all_masked_ > 0) line += format(" iterations without trained tokens: %lld |", wide(all_masked_));
  return line;
}

std::string IntervalLog::take_line(std::chrono::system_clock::time_point now) {
  if (empty()) return "";
  std::string line = megatron_fields(now) + own_fields();
  *this = IntervalLog(config_);
  return line;
}

std::string validation_lines(const EvalRecord& record, const std::string& where) {
  const double ppl =
      std::exp(std::isnan(record.validation_loss) ? record.validation_loss : std::min(20.0, record.validation_loss));
  const std::string line = format(" validation loss at iteration %lld", wide(record.iteration)) + where +
                           " | lm loss value: " + number("%.6E", record.validation_loss) +
                           " | lm loss PPL: " + number("%.6E", ppl) + " | ";
  const std::string dashes(line.size() + 1, '-');
  return dashes + "\n" + line + "\n" + dashes + "\n";
}

std::string progress_text(const StepRecord& record, const LogConfig& config) {
  const std::int64_t left = std::max<std::int64_t>(config.train_iters - record.iteration, 0);
  std::string text = format(" iteration %lld/%lld", wide(record.iteration), wide(config.train_iters));
  if (record.trained_tokens > 0) text += " | loss " + number("%.4f", record.loss);
  text += " | " + number("%.0f", record.tokens_per_second()) + " tokens/s";
  return text + " | " + format_duration(record.step_seconds * static_cast<double>(left)) + " left";
}

void RunSummary::add(const StepRecord& record) {
  add_times(sum_, record);
  ++steps_;
  skipped_ += record.skipped ? 1 : 0;
  redone_ += record.redone == true ? 1 : 0;
  counts_redone_ = counts_redone_ || record.redone.has_value();
}

std::string RunSummary::text(const MemoryByKind& peak_memory) const {
  std::string out = format(" summary: %lld iterations (%lld skipped", wide(steps_), wide(skipped_));
  if (counts_redone_) out += format(", %lld redone", wide(redone_));
  out += ") in " + format_duration(sum_.step_seconds) + "\n";
  if (steps_ > 0) {
    out += "   average per iteration: step (ms): " +
           number("%.1f", 1000.0 * sum_.step_seconds / static_cast<double>(steps_)) + " |" + times_text(sum_, steps_) +
           "\n";
    out += format("   throughput: trained tokens: %lld | computed tokens: %lld |", wide(sum_.trained_tokens),
                  wide(sum_.computed_tokens));
    out += " trained tokens/s: " +
           number("%.0f", per_second(static_cast<double>(sum_.trained_tokens), sum_.step_seconds)) + " |" +
           flops_text(sum_, config_) + "\n";
  }
  out += "   peak memory:";
  std::int64_t total = 0;
  for (const auto& [kind, bytes] : peak_memory) {
    out += " " + kind + ": " + format_bytes(bytes) + " |";
    total += bytes;
  }
  return out + " total: " + format_bytes(total) + "\n";
}

}  // namespace megatron::metrics
