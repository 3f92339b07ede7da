#include "comm/fault_plan.h"

#include <array>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "comm/fault_injector.h"

namespace megatron::comm {

namespace {

constexpr std::array<std::pair<std::string_view, FaultKind>, 7> kKinds{{{"throw", FaultKind::throw_error},
                                                                        {"delay", FaultKind::delay},
                                                                        {"wrong_count", FaultKind::wrong_count},
                                                                        {"exit", FaultKind::exit_process},
                                                                        {"kill", FaultKind::kill_process},
                                                                        {"stop", FaultKind::stop_process},
                                                                        {"nan", FaultKind::nan}}};

std::int64_t parse_integer(std::string_view field, std::string_view value) {
  std::int64_t number = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < 0)
    throw ConfigError(str_cat("--inject-fault: ", field, "=", value, ": must be a whole number from 0 to ",
                              std::numeric_limits<std::int64_t>::max()));
  return number;
}

double parse_seconds(std::string_view value) {
  double number = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !(number >= 0 && number < 1e9))
    throw ConfigError(str_cat("--inject-fault: seconds=", value, " is not a time from 0 up"));
  return number;
}

FaultKind parse_kind(std::string_view value) {
  std::string names;
  for (const auto& [name, kind] : kKinds) {
    if (name == value) return kind;
    names += str_cat(names.empty() ? "" : ", ", name);
  }
  throw ConfigError(str_cat("--inject-fault: kind=", value, " is unknown; kinds: ", names));
}

// Cuts the text before the first `separator` off `rest`.
std::string_view next_part(std::string_view& rest, char separator) {
  const std::size_t end = rest.find(separator);
  const std::string_view part = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  return part;
}

Fault parse_fault(std::string_view text) {
  Fault fault;
  bool has_rank = false, has_operation = false, has_iteration = false, has_kind = false, has_seconds = false;
  const std::string_view whole = text;
  while (!text.empty()) {
    const std::string_view field = next_part(text, ',');
    const std::size_t equals = field.find('=');
    const std::string_view name = field.substr(0, equals);
    if (equals == std::string_view::npos)
      throw ConfigError(str_cat("--inject-fault: field \"", field, "\" of \"", whole, "\" has no value"));
    const std::string_view value = field.substr(equals + 1);
    if (name == "rank") {
      const std::int64_t rank = parse_integer(name, value);
      if (rank > 1'000'000'000)
        throw ConfigError(str_cat("--inject-fault: rank=", value, ": must be at most 1000000000"));
      fault.rank = static_cast<int>(rank);
      has_rank = true;
    } else if (name == "operation") {
      fault.operation = parse_integer(name, value);
      has_operation = true;
    } else if (name == "iteration") {
      fault.iteration = parse_integer(name, value);
      has_iteration = true;
    } else if (name == "kind") {
      fault.kind = parse_kind(value);
      has_kind = true;
    } else if (name == "seconds") {
      fault.seconds = parse_seconds(value);
      has_seconds = true;
    } else {
      throw ConfigError(str_cat("--inject-fault: field \"", name,
                                "\" is unknown; fields: rank, operation, iteration, kind, seconds"));
    }
  }
  if (!has_rank) throw ConfigError(str_cat("--inject-fault: \"", whole, "\" has no rank"));
  if (!has_operation && !has_iteration)
    throw ConfigError(str_cat("--inject-fault: \"", whole, "\" has neither operation nor iteration"));
  if (!has_kind) throw ConfigError(str_cat("--inject-fault: \"", whole, "\" has no kind"));
  if (has_operation && has_iteration)
    throw ConfigError(str_cat("--inject-fault: \"", whole, "\": operation and iteration exclude each other"));
  if (fault.kind == FaultKind::delay && !has_seconds)
    throw ConfigError(str_cat("--inject-fault: \"", whole, "\": kind=delay needs seconds, as in seconds=5"));
  if (fault.kind != FaultKind::delay && has_seconds)
    throw ConfigError(str_cat("--inject-fault: \"", whole, "\": seconds belongs to kind=delay alone; leave it out"));
  return fault;
}

}  // namespace

FaultPlan parse_fault_plan(const std::string& text) {
  FaultPlan plan;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view part = next_part(rest, ';');
    if (!part.empty()) plan.faults.push_back(parse_fault(part));
  }
  return plan;
}

void check_fault_plan(const FaultPlan& plan, int world_size, std::optional<std::int64_t> iterations) {
  for (const Fault& fault : plan.faults) {
    if (fault.rank >= world_size)
      throw ConfigError(str_cat("--inject-fault: rank=", fault.rank, " is outside the world of ", world_size,
                                world_size == 1 ? " rank" : " ranks", "; nearest: rank=", world_size - 1));
    if (iterations && fault.iteration > *iterations)
      throw ConfigError(str_cat("--inject-fault: iteration=", fault.iteration, " is beyond the run of ", *iterations,
                                *iterations == 1 ? " iteration" : " iterations", "; nearest: iteration=", *iterations));
  }
}

FaultInjector::FaultInjector(const FaultPlan& plan, int rank) {
  for (const Fault& fault : plan.faults)
    if (fault.rank == rank) faults_.push_back(fault);
}

std::optional<Fault> FaultInjector::next(std::int64_t iteration, bool has_float_data) {
  const std::int64_t operation = operation_++;
  for (std::size_t i = 0; i < faults_.size(); ++i) {
    const Fault fault = faults_[i];
    const bool due = fault.iteration >= 0 ? iteration == fault.iteration : operation >= fault.operation;
    if (!due || (fault.kind == FaultKind::nan && !has_float_data)) continue;
    faults_.erase(faults_.begin() + static_cast<std::ptrdiff_t>(i));
    return fault;
  }
  return std::nullopt;
}

}  // namespace megatron::comm
