#include "spec/batch_schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/check.h"

namespace megatron::spec {
namespace {

constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();
constexpr double kMostTokens = 1e18;
constexpr std::int64_t kMostIncrements = 1'000'000;

[[noreturn]] void bad_entry(std::string_view entry, const std::string& rule) {
  throw ConfigError(str_cat("entry \"", entry, "\": ", rule));
}

double suffix_factor(char suffix) {
  switch (suffix) {
    case 'K':
    case 'k':
      return 1e3;
    case 'M':
    case 'm':
      return 1e6;
    case 'B':
    case 'b':
      return 1e9;
    case 'T':
    case 't':
      return 1e12;
    default:
      return 0.0;
  }
}

/// "1.5K" → 1500.
std::int64_t parse_count(std::string_view entry, std::string text) {
  double factor = 1.0;
  if (!text.empty() && suffix_factor(text.back()) > 0) {
    factor = suffix_factor(text.back());
    text.pop_back();
  }
  const bool plain = !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos;
  char* end = nullptr;
  const double number = plain ? std::strtod(text.c_str(), &end) : 0.0;
  if (!plain || end != text.c_str() + text.size()) bad_entry(entry, "expected TOKENS:BATCH_SIZE, such as 250B:1536");
  if (!(number * factor < kMostTokens)) bad_entry(entry, "the number is too large");
  return static_cast<std::int64_t>(number * factor);
}

}  // namespace

BatchSchedule::BatchSchedule(const BatchSpec& batch)
    : global_batch_(batch.global_batch_size),
      samples_per_round_(batch.samples_per_round),
      num_micro_batches_(batch.num_micro_batches),
      rampup_(batch.rampup),
      steps_(batch.batch_steps) {}

std::int64_t BatchSchedule::nominal(std::int64_t consumed) const {
  if (rampup_) {
    if (consumed > rampup_->samples) return rampup_->target;
    const std::int64_t increments = (rampup_->target - rampup_->start) / rampup_->increment;
    const double samples_each = static_cast<double>(rampup_->samples) / static_cast<double>(increments);
    return rampup_->start +
           static_cast<std::int64_t>(static_cast<double>(consumed) / samples_each) * rampup_->increment;
  }
  if (steps_.empty()) return global_batch_;
  std::size_t i = steps_.size() - 1;
  while (i > 0 && steps_[i].first_sample > consumed) --i;
  return steps_[i].global_batch;
}

StepBatch BatchSchedule::at(std::int64_t consumed) const { return batch_of(nominal(consumed)); }

StepBatch BatchSchedule::batch_of(std::int64_t nominal) const {
  StepBatch batch;
  batch.nominal = nominal;
  batch.num_micro_batches = samples_per_round_ > 0 ? nominal / samples_per_round_ : num_micro_batches_;
  batch.global_batch = samples_per_round_ > 0 ? batch.num_micro_batches * samples_per_round_ : nominal;
  return batch;
}

std::int64_t BatchSchedule::next_change(std::int64_t consumed) const {
  if (rampup_) {
    const std::int64_t now = nominal(consumed);
    if (now == rampup_->target) return kForever;
    const std::int64_t increments = (rampup_->target - rampup_->start) / rampup_->increment;
    const double each = static_cast<double>(rampup_->samples) / static_cast<double>(increments);
    const std::int64_t done = (now - rampup_->start) / rampup_->increment;
    // Near the border in exact numbers, then step by step to the one in double.
    auto next = static_cast<std::int64_t>(static_cast<double>(done + 1) * each) - 1;
    next = std::clamp(next, consumed + 1, std::max(consumed, rampup_->samples) + 1);
    while (nominal(next) == now) ++next;
    return next;
  }
  for (const BatchStep& step : steps_)
    if (step.first_sample > consumed) return step.first_sample;
  return kForever;
}

template <typename Visit>
void BatchSchedule::walk(Visit&& visit) const {
  BatchStretch stretch;
  while (true) {
    stretch.batch = at(stretch.first_sample);
    const std::int64_t size = stretch.batch.global_batch;
    const std::int64_t change = next_change(stretch.first_sample);
    const std::int64_t steps =
        size == 0 || change == kForever ? kForever : (change - stretch.first_sample - 1) / size + 1;
    if (!visit(stretch, steps) || steps == kForever) return;
    stretch.first_iteration += steps;
    stretch.first_sample += steps * size;
  }
}

std::int64_t BatchSchedule::samples_after(std::int64_t iterations) const {
  std::int64_t samples = 0;
  walk([&](const BatchStretch& stretch, std::int64_t steps) {
    const std::int64_t left = iterations - stretch.first_iteration;
    if (left > 0 && stretch.batch.global_batch == 0)
      throw ConfigError(str_cat("a global batch of ", stretch.batch.nominal, " trains nothing after ",
                                stretch.first_sample, " samples: it is less than one micro-batch on every rank"));
    samples = stretch.first_sample + std::max<std::int64_t>(0, std::min(left, steps)) * stretch.batch.global_batch;
    return left > steps;
  });
  return samples;
}

std::int64_t BatchSchedule::iterations_within(std::int64_t samples) const {
  std::int64_t iterations = 0;
  walk([&](const BatchStretch& stretch, std::int64_t steps) {
    if (stretch.batch.global_batch == 0) return false;
    const std::int64_t fit = (samples - stretch.first_sample) / stretch.batch.global_batch;
    iterations = stretch.first_iteration + std::min(fit, steps);
    return fit > steps;
  });
  return iterations;
}

std::vector<BatchStretch> BatchSchedule::trajectory(std::optional<std::int64_t> iterations) const {
  std::vector<BatchStretch> list;
  walk([&](const BatchStretch& stretch, std::int64_t) {
    if (iterations && stretch.first_iteration >= *iterations) return false;
    list.push_back(stretch);
    return stretch.batch.global_batch > 0;
  });
  return list;
}

StepBatch BatchSchedule::largest(std::optional<std::int64_t> iterations) const {
  StepBatch largest = at(0);
  if (largest.global_batch == 0) {
    std::int64_t most = rampup_ ? rampup_->target : global_batch_;
    for (const BatchStep& step : steps_) most = std::max(most, step.global_batch);
    return batch_of(most);
  }
  for (const BatchStretch& stretch : trajectory(iterations))
    if (stretch.batch.global_batch > largest.global_batch) largest = stretch.batch;
  return largest;
}

std::vector<BatchStep> parse_batch_steps(std::string_view text, std::int64_t seq_length) {
  std::vector<BatchStep> steps;
  std::vector<std::string> entries(1);
  for (const char c : text) {
    if (c != ' ' && c != ',' && c != '\t')
      entries.back() += c;
    else if (!entries.back().empty())
      entries.emplace_back();
  }
  if (entries.back().empty()) entries.pop_back();
  if (entries.empty()) throw ConfigError("must have at least one entry TOKENS:BATCH_SIZE");
  for (const std::string& entry : entries) {
    const auto colon = entry.find(':');
    if (colon == std::string::npos || entry.find(':', colon + 1) != std::string::npos)
      bad_entry(entry, "expected TOKENS:BATCH_SIZE, such as 250B:1536");
    const std::string size = entry.substr(colon + 1);
    if (size.empty() || size.size() > 10 || size.find_first_not_of("0123456789") != std::string::npos)
      bad_entry(entry, "the batch size must be a whole number up to 9999999999");
    const std::int64_t threshold = parse_count(entry, entry.substr(0, colon));
    steps.push_back({seq_length > 0 ? threshold / seq_length : threshold, std::atoll(size.c_str())});
    if (steps.back().global_batch == 0) bad_entry(entry, "the batch size must be above 0");
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const BatchStep& a, const BatchStep& b) { return a.first_sample < b.first_sample; });
  const std::string unit =
      seq_length > 0 ? str_cat(" (thresholds are tokens, ", seq_length, " of them a sample)") : " (in samples)";
  if (steps.front().first_sample != 0)
    throw ConfigError(str_cat("the first batch, ", steps.front().global_batch, ", must have threshold 0", unit));
  for (std::size_t i = 1; i < steps.size(); ++i)
    if (steps[i].first_sample == steps[i - 1].first_sample)
      throw ConfigError(str_cat("thresholds must increase: batches ", steps[i - 1].global_batch, " and ",
                                steps[i].global_batch, " both begin at sample ", steps[i].first_sample, unit));
  return steps;
}

void check(const BatchRampup& r) {
  if (r.start < 1) throw ConfigError(str_cat("the start batch must be at least 1, not ", r.start, "; nearest: 1"));
  if (r.increment < 1)
    throw ConfigError(str_cat("the increment must be at least 1, not ", r.increment, "; nearest: 1"));
  if (r.samples < 1) throw ConfigError(str_cat("the ramp needs at least 1 sample, not ", r.samples, "; nearest: 1"));
  if (r.start >= r.target)
    throw ConfigError(str_cat("the start batch ", r.start, " must be below the global batch ", r.target,
                              "; nearest: a global batch of ", r.start + r.increment));
  const std::int64_t range = r.target - r.start;
  if (range % r.increment != 0)
    throw ConfigError(str_cat("from ", r.start, " to ", r.target, " is not a whole number of increments of ",
                              r.increment, "; nearest global batch: ", r.start + range / r.increment * r.increment,
                              " or ", r.start + (range / r.increment + 1) * r.increment));
  if (range / r.increment > kMostIncrements) throw ConfigError(str_cat("more than ", kMostIncrements, " increments"));
}

std::optional<std::int64_t> train_iterations(const BatchSpec& batch) {
  if (batch.train_iters) return batch.train_iters;
  if (!batch.train_samples) return std::nullopt;
  return BatchSchedule(batch).iterations_within(*batch.train_samples);
}

bool trains(const BatchSpec& batch) {
  // Without a batch size the length in samples says nothing yet.
  const bool unknown = !batch.train_iters && batch.global_batch_size == 0;
  return !batch.skip_train && (unknown || train_iterations(batch) != 0);
}

}  // namespace megatron::spec
