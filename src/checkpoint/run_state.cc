#include "checkpoint/run_state.h"

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace megatron::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "megatron.cpp run state";
constexpr std::int64_t kVersion = 1;

/// Calls f(key, field) for each field; one table for both directions.
template <typename State, typename F>
void each_count(State& state, F&& f) {
  f("iteration", state.iteration);
  f("consumed_samples", state.consumed_samples);
  f("consumed_valid_samples", state.consumed_valid_samples);
  f("trained_tokens", state.trained_tokens);
  f("skipped_iterations", state.skipped_iterations);
  f("num_updates", state.num_updates);
  f("scheduler_samples", state.scheduler_samples);
}

template <typename Schedule, typename F>
void each_schedule_field(Schedule& schedule, F&& f) {
  f("max_lr", schedule.max_lr);
  f("min_lr", schedule.min_lr);
  f("lr_warmup_init", schedule.lr_warmup_init);
  f("lr_decay_style", schedule.lr_decay_style);
  f("lr_wsd_decay_style", schedule.lr_wsd_decay_style);
  f("lr_warmup_samples", schedule.lr_warmup_samples);
  f("lr_decay_samples", schedule.lr_decay_samples);
  f("lr_wsd_decay_samples", schedule.lr_wsd_decay_samples);
  f("start_weight_decay", schedule.start_weight_decay);
  f("end_weight_decay", schedule.end_weight_decay);
  f("weight_decay_incr_style", schedule.weight_decay_incr_style);
  f("weight_decay_incr_samples", schedule.weight_decay_incr_samples);
}

template <typename Scaler, typename F>
void each_scaler_field(Scaler& scaler, F&& f) {
  f("scale", scaler.scale);
  f("growth_tracker", scaler.growth_tracker);
  f("hysteresis_tracker", scaler.hysteresis_tracker);
}

Json parse_object(const std::string& text, const char* what) {
  Json json = Json::parse(text, nullptr, false);
  MEGATRON_CHECK(json.is_object(), what, " is not a JSON object");
  return json;
}

/// Takes fields out of an object, so that what is left is unknown.
class Fields {
 public:
  Fields(const Json& object, std::string where, const std::string& path)
      : object_(object), where_(std::move(where)), path_(path) {
    if (!object.is_object()) fail("is not an object");
  }

  void operator()(const char* key, std::int64_t& field) {
    const Json& value = take(key);
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() >> 63 != 0) ||
        value.get<std::int64_t>() < 0)
      fail(str_cat("\"", key, "\" is ", value.dump(), ", not a count"));
    field = value.get<std::int64_t>();
  }
  void operator()(const char* key, double& field) {
    const Json& value = take(key);
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      fail(str_cat("\"", key, "\" is ", value.dump(), ", not a number"));
    field = value.get<double>();
  }
  void operator()(const char* key, std::string& field) {
    const Json& value = take(key);
    if (!value.is_string()) fail(str_cat("\"", key, "\" is ", value.dump(), ", not a string"));
    field = value.get<std::string>();
  }
  const Json& object(const char* key) {
    const Json& value = take(key);
    if (!value.is_object()) fail(str_cat("\"", key, "\" is not an object"));
    return value;
  }
  /// To be called at the end.
  void refuse_others() const {
    for (const auto& [key, value] : object_.items())
      if (taken_.count(key) == 0) fail(str_cat("unknown field \"", key, "\""));
  }
  [[noreturn]] void fail(const std::string& reason) const { throw IoError(str_cat(path_, ": ", where_, ": ", reason)); }

 private:
  const Json& take(const char* key) {
    const auto found = object_.find(key);
    if (found == object_.end()) fail(str_cat("\"", key, "\" is missing"));
    taken_.insert(key);
    return *found;
  }

  const Json& object_;
  std::string where_;
  const std::string& path_;
  std::set<std::string> taken_;
};

}  // namespace

std::string run_state_to_json(const RunState& state) {
  Json json{{"format", kFormat}, {"version", kVersion}};
  each_count(state, [&](const char* key, const std::int64_t& field) { json[key] = field; });
  Json& schedule = json["schedule"] = Json::object();
  each_schedule_field(state.schedule, [&](const char* key, const auto& field) { schedule[key] = field; });
  if (state.loss_scaler.has_value()) {
    Json& scaler = json["loss_scaler"] = Json::object();
    each_scaler_field(*state.loss_scaler, [&](const char* key, const auto& field) { scaler[key] = field; });
  }
  json["run"] = parse_object(state.run_json, "the description of the run");
  json["tokenizer"] = parse_object(state.tokenizer_json, "the description of the tokenizer");
  return json.dump(1) + "\n";
}

RunState run_state_from_json(const std::string& text, const std::string& path) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw IoError(str_cat(path, ": is not valid JSON (damaged or cut short)"));
  RunState state;
  Fields fields(json, "state", path);
  std::string format;
  std::int64_t version = 0;
  fields("format", format);
  fields("version", version);
  if (format != kFormat) fields.fail(str_cat("format is \"", format, "\", not \"", kFormat, "\""));
  if (version != kVersion) fields.fail(str_cat("version ", version, ", this program reads version ", kVersion));
  each_count(state, fields);
  Fields schedule(fields.object("schedule"), "schedule", path);
  each_schedule_field(state.schedule, schedule);
  schedule.refuse_others();
  if (json.contains("loss_scaler")) {
    Fields scaler(fields.object("loss_scaler"), "loss_scaler", path);
    each_scaler_field(state.loss_scaler.emplace(), scaler);
    scaler.refuse_others();
  }
  state.run_json = fields.object("run").dump();
  state.tokenizer_json = fields.object("tokenizer").dump();
  fields.refuse_others();
  return state;
}

}  // namespace megatron::checkpoint
