#include "base/trace.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace megatron {
namespace {

template <std::size_t N>
void copy_text(std::string_view text, std::array<char, N>& to) {
  std::copy_n(text.data(), std::min(text.size(), N - 1), to.data());
}

}  // namespace

const char* span_kind_name(SpanKind kind) {
  switch (kind) {
    case SpanKind::step:
      return "step";
    case SpanKind::phase:
      return "phase";
    case SpanKind::kernel:
      return "kernel";
    case SpanKind::post:
      return "post";
    case SpanKind::wait:
      return "wait";
  }
  return "?";
}

std::int64_t trace_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Trace::Trace(std::int64_t max_events) : max_events_(max_events) {
  events_.reserve(static_cast<std::size_t>(max_events));
  totals_.reserve(128);
  open_.reserve(16);
}

std::size_t Trace::find_total(SpanKind kind, const char* name, std::string_view group) {
  for (std::size_t i = 0; i < totals_.size(); ++i)
    if (totals_[i].name == name && totals_[i].kind == kind && totals_[i].group == group) return i;
  totals_.push_back({kind, name, std::string(group), 0, 0, {}});
  return totals_.size() - 1;
}

void Trace::open(SpanKind kind, const char* name, std::string_view group, std::string_view label) {
  std::int64_t event = -1;
  if (std::ssize(events_) < max_events_) {
    event = std::ssize(events_);
    TraceEvent& fresh = events_.emplace_back();
    fresh.name = name;
    fresh.kind = kind;
    copy_text(group, fresh.group);
    copy_text(label, fresh.label);
  } else {
    ++num_left_out_;
  }
  open_.push_back({find_total(kind, name, group), event, 0, 0, {}});
  open_.back().begin_ns = trace_clock_ns();  // last: the bookkeeping belongs to the span outside
}

void Trace::close(SpanWork work) {
  const std::int64_t end = trace_clock_ns();
  MEGATRON_CHECK(!open_.empty(), "no span is open");
  const Open span = open_.back();
  open_.pop_back();
  const std::int64_t duration = end - span.begin_ns;
  Total& total = totals_[span.total];
  ++total.calls;
  total.own_ns += duration - span.inner_ns;
  total.work.flops += std::max<std::int64_t>(0, work.flops - span.inner_work.flops);
  total.work.bytes += std::max<std::int64_t>(0, work.bytes - span.inner_work.bytes);
  if (span.event >= 0) {
    TraceEvent& event = events_[static_cast<std::size_t>(span.event)];
    event.begin_ns = span.begin_ns;
    event.end_ns = end;
    event.work = work;
  }
  if (open_.empty()) return;
  open_.back().inner_ns += duration;
  open_.back().inner_work.flops += work.flops;
  open_.back().inner_work.bytes += work.bytes;
}

std::vector<SpanTotal> Trace::totals() const {
  std::vector<SpanTotal> merged;
  for (const Total& total : totals_) {
    // Equal literals of two files may stand at two places.
    auto same = std::find_if(merged.begin(), merged.end(), [&](const SpanTotal& m) {
      return m.kind == total.kind && m.name == total.name && m.group == total.group;
    });
    if (same == merged.end()) same = merged.insert(merged.end(), {total.kind, total.name, total.group, 0, 0, {}});
    same->calls += total.calls;
    same->own_ns += total.own_ns;
    same->work.flops += total.work.flops;
    same->work.bytes += total.work.bytes;
  }
  return merged;
}

}  // namespace megatron
