#include "train/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace megatron::train {
namespace {

/// Text within the quotes of a JSON string; bytes of cut or foreign encodings are told as "?".
std::string quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    out += code < 0x20 || code > 0x7e ? '?' : c;
  }
  return out;
}

/// Microseconds with all digits of the nanoseconds, so that spans nest in the file as they did in time.
std::string microseconds(std::int64_t ns) {
  std::array<char, 40> text{};
  const std::int64_t size = ns < 0 ? -ns : ns;
  std::snprintf(text.data(), text.size(), "%s%lld.%03lld", ns < 0 ? "-" : "", static_cast<long long>(size / 1000),
                static_cast<long long>(size % 1000));
  return text.data();
}

std::string name_of(const TraceEvent& event) {
  std::string name = event.name;
  if (event.kind == SpanKind::post || event.kind == SpanKind::wait)
    name = str_cat(span_kind_name(event.kind), " ", name, " ", event.group.data());
  if (event.kind == SpanKind::step) name += str_cat(" ", event.label.data());
  return quoted(name);
}

std::string arguments_of(const TraceEvent& event) {
  std::string out;
  const auto add = [&out](const char* key, const std::string& value) {
    out += str_cat(out.empty() ? "" : ",", "\"", key, "\":", value);
  };
  const bool communication = event.kind == SpanKind::post || event.kind == SpanKind::wait;
  if (event.label[0] != '\0' && event.kind != SpanKind::step)
    add(communication ? "label" : "instruction", "\"" + quoted(event.label.data()) + "\"");
  const auto ns = static_cast<double>(event.end_ns - event.begin_ns);
  if (event.work.flops > 0) add("flops", std::to_string(event.work.flops));
  if (event.work.flops > 0 && ns > 0) add("GFLOP/s", std::to_string(static_cast<double>(event.work.flops) / ns));
  if (event.work.bytes > 0) add("bytes", std::to_string(event.work.bytes));
  if (event.work.bytes > 0 && ns > 0) add("GB/s", std::to_string(static_cast<double>(event.work.bytes) / ns));
  return out;
}

}  // namespace

TraceFile::TraceFile(std::string path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("open");
}

TraceFile::~TraceFile() {
  if (fd_ >= 0) ::close(fd_);
}

void TraceFile::fail(const char* what) const {
  throw IoError(str_cat("--trace ", path_, ": cannot ", what, ": ", std::strerror(errno)));
}

void TraceFile::begin() {
  // Pipes and devices have no length to cut.
  if (::ftruncate(fd_, 0) != 0 && errno != EINVAL) fail("write");
  add("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
}

void TraceFile::begin_rank() {
  if (std::exchange(has_rank_, true)) add(",\n");
}

void TraceFile::add(std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd_, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail("write");
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

void TraceFile::end() {
  add("\n]}\n");
  if (::close(std::exchange(fd_, -1)) != 0) fail("write");
}

std::string trace_events_json(const Trace& trace, int rank, const std::string& rank_name, std::int64_t shift_ns) {
  const std::string place = str_cat("\"pid\":", rank, ",\"tid\":0");
  std::string out =
      str_cat("{\"name\":\"process_name\",\"ph\":\"M\",", place, ",\"args\":{\"name\":\"", quoted(rank_name),
              "\"}},\n{\"name\":\"process_sort_index\",\"ph\":\"M\",", place, ",\"args\":{\"sort_index\":", rank, "}}");
  for (const TraceEvent& event : trace.events()) {
    out += str_cat(",\n{\"name\":\"", name_of(event), "\",\"cat\":\"", span_kind_name(event.kind), "\",\"ph\":\"X\",",
                   "\"ts\":", microseconds(event.begin_ns + shift_ns),
                   ",\"dur\":", microseconds(event.end_ns - event.begin_ns), ",", place, ",\"args\":{",
                   arguments_of(event), "}}");
  }
  return out;
}

}  // namespace megatron::train
