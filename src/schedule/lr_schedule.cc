#include "schedule/lr_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <utility>

#include "base/check.h"
#include "spec/batch_schedule.h"

namespace megatron::schedule {
namespace {

constexpr double kPi = 3.14159265358979323846;

using DecayNames = std::array<std::pair<spec::DecayStyle, std::string_view>, 5>;
using WsdNames = std::array<std::pair<spec::WsdDecayStyle, std::string_view>, 4>;
using WeightDecayNames = std::array<std::pair<spec::WeightDecayStyle, std::string_view>, 3>;

constexpr DecayNames kDecayNames = {{{spec::DecayStyle::constant, "constant"},
                                     {spec::DecayStyle::linear, "linear"},
                                     {spec::DecayStyle::cosine, "cosine"},
                                     {spec::DecayStyle::inverse_square_root, "inverse-square-root"},
                                     {spec::DecayStyle::wsd, "WSD"}}};
constexpr WsdNames kWsdNames = {{{spec::WsdDecayStyle::exponential, "exponential"},
                                 {spec::WsdDecayStyle::linear, "linear"},
                                 {spec::WsdDecayStyle::cosine, "cosine"},
                                 {spec::WsdDecayStyle::minus_sqrt, "minus_sqrt"}}};
constexpr WeightDecayNames kWeightDecayNames = {{{spec::WeightDecayStyle::constant, "constant"},
                                                 {spec::WeightDecayStyle::linear, "linear"},
                                                 {spec::WeightDecayStyle::cosine, "cosine"}}};

template <typename Names, typename Style>
std::string_view find_name(const Names& names, Style style) {
  for (const auto& [known, name] : names)
    if (known == style) return name;
  return "?";
}

template <typename Style, typename Names>
Style find_style(const Names& names, std::string_view wanted, const char* option) {
  std::string all;
  for (const auto& [style, name] : names) {
    if (name == wanted) return style;
    all += str_cat(all.empty() ? "" : ", ", name);
  }
  throw ConfigError(str_cat(option, " ", wanted, ": must be one of ", all));
}

/// The WSD coefficient: flat, then down over the last wsd_decay_samples.
double wsd_coefficient(const LrSchedule& s, double n) {
  const auto decay = static_cast<double>(s.decay_samples), wsd = static_cast<double>(s.wsd_decay_samples);
  const double start = decay - wsd;
  if (n <= start) return 1.0;
  const double q = (n - start) / wsd;
  switch (s.wsd_style) {
    case spec::WsdDecayStyle::linear:
      return 1.0 - q;
    case spec::WsdDecayStyle::cosine:
      return 0.5 * (std::cos(kPi * q) + 1.0);
    case spec::WsdDecayStyle::exponential:
      return 2.0 * std::pow(0.5, q) - 1.0;
    case spec::WsdDecayStyle::minus_sqrt:
      return 1.0 - std::sqrt(q);
  }
  return 1.0;
}

/// Shortest text that reads back as the same double.
std::string number_text(double value) {
  for (int digits = 1; digits <= std::numeric_limits<double>::max_digits10; ++digits) {
    std::ostringstream out;
    out.precision(digits);
    out << value;
    if (std::stod(out.str()) == value) return out.str();
  }
  return std::to_string(value);
}

std::string text_of(double value) { return number_text(value); }
std::string text_of(std::int64_t value) { return std::to_string(value); }
template <typename Style>
std::string text_of(Style style) {
  return std::string(style_name(style));
}

template <typename T>
void require_equal(const char* quantity, T own, T saved) {
  if (own == saved) return;
  throw ConfigError(str_cat(quantity, " ", text_of(own), ": the checkpoint was trained with ", text_of(saved),
                            "; give that value, or --override-opt_param-scheduler to change it, or "
                            "--use-checkpoint-opt_param-scheduler to take the checkpoint's"));
}

[[noreturn]] void fail(const char* option, double value, const std::string& rule) {
  throw ConfigError(str_cat(option, " ", number_text(value), ": ", rule));
}

}  // namespace

std::string_view style_name(spec::DecayStyle style) { return find_name(kDecayNames, style); }
std::string_view style_name(spec::WsdDecayStyle style) { return find_name(kWsdNames, style); }
std::string_view style_name(spec::WeightDecayStyle style) { return find_name(kWeightDecayNames, style); }
spec::DecayStyle parse_decay_style(std::string_view name) {
  return find_style<spec::DecayStyle>(kDecayNames, name, "--lr-decay-style");
}
spec::WsdDecayStyle parse_wsd_decay_style(std::string_view name) {
  return find_style<spec::WsdDecayStyle>(kWsdNames, name, "--lr-wsd-decay-style");
}
spec::WeightDecayStyle parse_weight_decay_style(std::string_view name) {
  return find_style<spec::WeightDecayStyle>(kWeightDecayNames, name, "--weight-decay-incr-style");
}

double LrSchedule::lr(std::int64_t num_samples) const {
  const auto n = static_cast<double>(num_samples), decay = static_cast<double>(decay_samples);
  if (warmup_samples > 0.0 && n <= warmup_samples) return init_lr + (max_lr - init_lr) * n / warmup_samples;
  if (style == spec::DecayStyle::constant) return max_lr;
  if (num_samples > decay_samples) return min_lr;
  if (style == spec::DecayStyle::inverse_square_root)
    return std::max(min_lr, max_lr * std::sqrt(std::max(warmup_samples, 1.0)) / std::sqrt(std::max(n, 1.0)));
  const double ratio = (n - warmup_samples) / (decay - warmup_samples);
  double coefficient = 1.0;
  if (style == spec::DecayStyle::linear) coefficient = 1.0 - ratio;
  if (style == spec::DecayStyle::cosine) coefficient = 0.5 * (std::cos(kPi * ratio) + 1.0);
  if (style == spec::DecayStyle::wsd) coefficient = wsd_coefficient(*this, n);
  return min_lr + coefficient * (max_lr - min_lr);
}

double LrSchedule::weight_decay(std::int64_t num_samples) const {
  if (num_samples > weight_decay_samples || weight_decay_style == spec::WeightDecayStyle::constant)
    return end_weight_decay;
  // A schedule of length 0 is over at its first sample.
  const double ratio =
      weight_decay_samples == 0 ? 1.0 : static_cast<double>(num_samples) / static_cast<double>(weight_decay_samples);
  const double coefficient =
      weight_decay_style == spec::WeightDecayStyle::linear ? ratio : 0.5 * (std::cos(kPi * (1.0 - ratio)) + 1.0);
  return start_weight_decay + coefficient * (end_weight_decay - start_weight_decay);
}

void check(const LrSchedule& s) {
  if (!(s.min_lr >= 0.0)) fail("--min-lr", s.min_lr, "must be at least 0");
  if (!(s.max_lr >= s.min_lr)) fail("--min-lr", s.min_lr, str_cat("must be at most --lr ", number_text(s.max_lr)));
  if (!(s.init_lr <= s.max_lr))
    fail("--lr-warmup-init", s.init_lr, str_cat("must be at most --lr ", number_text(s.max_lr)));
  if (s.decay_samples <= 0) fail("--lr-decay-samples", static_cast<double>(s.decay_samples), "must be greater than 0");
  if (!(s.warmup_samples < static_cast<double>(s.decay_samples)))
    fail("--lr-warmup-samples", s.warmup_samples,
         str_cat("must be less than the decay of ", s.decay_samples, " samples (iterations × global batch size)"));
  if (!(s.start_weight_decay >= 0.0)) fail("--start-weight-decay", s.start_weight_decay, "must be at least 0");
  if (!(s.end_weight_decay >= s.start_weight_decay))
    fail("--end-weight-decay", s.end_weight_decay,
         str_cat("must be at least --start-weight-decay ", number_text(s.start_weight_decay)));
  if (s.weight_decay_style == spec::WeightDecayStyle::constant && s.start_weight_decay != s.end_weight_decay)
    fail("--end-weight-decay", s.end_weight_decay,
         str_cat("must equal --start-weight-decay ", number_text(s.start_weight_decay),
                 " with --weight-decay-incr-style constant"));
  if (s.style == spec::DecayStyle::wsd && s.wsd_decay_samples <= 0)
    throw ConfigError("--lr-decay-style WSD: needs --lr-wsd-decay-iters or --lr-wsd-decay-samples, greater than 0");
}

LrSchedule make_lr_schedule(const spec::OptimizerSpec& optimizer, const spec::BatchSpec& batch) {
  LrSchedule s;
  if (!optimizer.lr) throw ConfigError("--lr is missing: the schedule needs the largest learning rate");
  s.init_lr = optimizer.lr_warmup_init;
  s.max_lr = *optimizer.lr;
  s.min_lr = optimizer.min_lr;
  s.style = optimizer.lr_decay_style;
  s.wsd_style = optimizer.lr_wsd_decay_style;
  if (batch.train_iters) {
    // Iterations become samples along the batches that the run really has.
    const spec::BatchSchedule batches(batch);
    const std::int64_t decay = optimizer.lr_decay_iters.value_or(*batch.train_iters);
    const std::int64_t wsd = optimizer.lr_wsd_decay_iters.value_or(0);
    s.decay_samples = batches.samples_after(decay);
    s.weight_decay_samples = batches.samples_after(*batch.train_iters);
    s.wsd_decay_samples = s.decay_samples - batches.samples_after(std::max<std::int64_t>(0, decay - wsd)) +
                          std::max<std::int64_t>(0, wsd - decay) * batches.at(0).global_batch;
    s.warmup_samples = static_cast<double>(batches.samples_after(optimizer.lr_warmup_iters));
  } else if (batch.train_samples) {
    s.decay_samples = optimizer.lr_decay_samples.value_or(*batch.train_samples);
    s.weight_decay_samples = *batch.train_samples;
    s.wsd_decay_samples = optimizer.lr_wsd_decay_samples.value_or(0);
    s.warmup_samples = static_cast<double>(optimizer.lr_warmup_samples);
  } else {
    throw ConfigError("--train-iters (or --train-samples) is missing: the schedule needs the length of the training");
  }
  if (optimizer.lr_warmup_fraction)
    s.warmup_samples = *optimizer.lr_warmup_fraction * static_cast<double>(s.decay_samples);
  s.weight_decay_style = optimizer.weight_decay_incr_style;
  s.start_weight_decay = optimizer.start_weight_decay.value_or(optimizer.weight_decay);
  s.end_weight_decay = optimizer.end_weight_decay.value_or(optimizer.weight_decay);
  check(s);
  return s;
}

LrSchedule resume(const LrSchedule& own, const LrSchedule& saved, bool override_from_options, bool use_checkpoint) {
  if (override_from_options && use_checkpoint)
    throw ConfigError(
        "--override-opt_param-scheduler and --use-checkpoint-opt_param-scheduler exclude each other: give one");
  if (override_from_options) return own;
  if (!use_checkpoint) {
    require_equal("--lr", own.max_lr, saved.max_lr);
    require_equal("--min-lr", own.min_lr, saved.min_lr);
    require_equal("warm-up in samples (--lr-warmup-iters, --lr-warmup-samples)", own.warmup_samples,
                  saved.warmup_samples);
    require_equal(
        "decay in samples (--lr-decay-iters or --lr-decay-samples; not given, --train-iters or --train-samples)",
        own.decay_samples, saved.decay_samples);
    require_equal("--lr-decay-style", own.style, saved.style);
    require_equal("--start-weight-decay", own.start_weight_decay, saved.start_weight_decay);
    require_equal("--end-weight-decay", own.end_weight_decay, saved.end_weight_decay);
    require_equal("weight-decay length in samples (--train-iters or --train-samples)", own.weight_decay_samples,
                  saved.weight_decay_samples);
    require_equal("--weight-decay-incr-style", own.weight_decay_style, saved.weight_decay_style);
    return own;
  }
  LrSchedule result = saved;
  result.init_lr = own.init_lr;
  result.wsd_style = own.wsd_style;
  result.wsd_decay_samples = own.wsd_decay_samples;
  return result;
}

}  // namespace megatron::schedule
