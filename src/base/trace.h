// What one rank did and when: nested spans of time with the work done in them, recorded only where somebody asks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// What a span stands for. The time of a step is the sum of the own times of all its spans, whatever their kind.
enum class SpanKind : std::uint8_t {
  step,    // a whole step: the outermost span
  phase,   // an instruction of the pipeline, or another part of the step
  kernel,  // one call of a kernel
  post,    // starting a communication
  wait,    // waiting for one
};

const char* span_kind_name(SpanKind kind);

struct SpanWork {
  std::int64_t flops = 0, bytes = 0;
};

/// One span. Times in nanoseconds of the machine's steady clock.
struct TraceEvent {
  const char* name = "";  // a literal
  std::array<char, 16> group{};
  std::array<char, 40> label{};  // what it worked on; cut where it is longer
  SpanKind kind = SpanKind::phase;
  std::int64_t begin_ns = 0, end_ns = 0;
  SpanWork work;
};

/// All spans of one kind, name and group together.
struct SpanTotal {
  SpanKind kind = SpanKind::phase;
  std::string name, group;
  std::int64_t calls = 0;
  std::int64_t own_ns = 0;  // without the spans inside
  SpanWork work;            // likewise
};

/// Belongs to one rank and is used by its thread alone. Totals are kept of every span, events of the first `max_events`
/// ones; their memory is reserved at once and becomes resident as they come.
class Trace {
 public:
  explicit Trace(std::int64_t max_events);

  /// `name` is a literal; `group` and `label` are copied.
  void open(SpanKind kind, const char* name, std::string_view group = {}, std::string_view label = {});
  /// Ends the span that was opened last; `work` includes that of the spans inside.
  void close(SpanWork work = {});

  /// In the order of their beginnings. Complete when no span is open.
  const std::vector<TraceEvent>& events() const { return events_; }
  /// Spans that found no room among the events.
  std::int64_t num_left_out() const { return num_left_out_; }
  /// In the order in which they came first.
  std::vector<SpanTotal> totals() const;

 private:
  struct Total {
    SpanKind kind;
    const char* name;
    std::string group;
    std::int64_t calls, own_ns;
    SpanWork work;
  };
  struct Open {
    std::size_t total;
    std::int64_t event;  // −1: left out
    std::int64_t begin_ns;
    std::int64_t inner_ns;
    SpanWork inner_work;
  };
  std::size_t find_total(SpanKind kind, const char* name, std::string_view group);

  std::int64_t max_events_;
  std::vector<TraceEvent> events_;
  std::vector<Total> totals_;
  std::vector<Open> open_;
  std::int64_t num_left_out_ = 0;
};

/// A span of the enclosing block; does nothing where `trace` is null.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, SpanKind kind, const char* name, std::string_view group = {}, std::string_view label = {})
      : trace_(trace) {
    if (trace_ != nullptr) [[unlikely]]
      trace_->open(kind, name, group, label);
  }
  ~TraceSpan() {
    if (trace_ != nullptr) [[unlikely]]
      trace_->close();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
};

/// Nanoseconds of the clock that spans are measured with.
std::int64_t trace_clock_ns();

}  // namespace megatron
