#include "metrics/json_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace megatron::metrics {
namespace {

class ObjectText {
 public:
  void add(const char* key, std::int64_t value) { raw(key, std::to_string(value)); }
  void add(const char* key, bool value) { raw(key, value ? "true" : "false"); }
  void add(const char* key, double value) {
    char text[40];
    std::snprintf(text, sizeof(text), "%.17g", value);
    raw(key, std::isfinite(value) ? text : "null");
  }
  void add(const char* key, const std::string& value) {
    raw(key, nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  void add(const char* key, const ObjectText& object) { raw(key, object.finish()); }
  void add_null(const char* key) { raw(key, "null"); }
  std::string finish() const { return "{" + text_ + "}"; }

 private:
  void raw(const char* key, const std::string& value) {
    text_ += str_cat(text_.empty() ? "" : ", ", '"', key, "\": ", value);
  }
  std::string text_;
};

}  // namespace

std::string to_json(const StepRecord& record) {
  ObjectText object;
  object.add("iteration", record.iteration);
  object.add("consumed_samples", record.consumed_samples);
  object.add("trained_tokens", record.trained_tokens);
  if (record.trained_tokens > 0)
    object.add("loss", record.loss);
  else
    object.add_null("loss");
  object.add("grad_norm", record.grad_norm);
  object.add("lr", record.lr);
  object.add("tokens_per_second", record.tokens_per_second());
  object.add("step_seconds", record.step_seconds);
  object.add("forward_seconds", record.forward_seconds);
  object.add("backward_seconds", record.backward_seconds);
  object.add("skipped", record.skipped);
  object.add("nan", record.nan);
  object.add("global_batch_size", record.global_batch_size);
  object.add("computed_tokens", record.computed_tokens);
  object.add("loss_scale", record.loss_scale);
  object.add("exposed_communication_seconds", record.exposed_communication_seconds);
  object.add("optimizer_seconds", record.optimizer_seconds);
  object.add("data_seconds", record.data_seconds);
  object.add("model_flops", record.model_flops);
  if (record.num_zeros) object.add("num_zeros", *record.num_zeros);
  if (record.params_norm) object.add("params_norm", *record.params_norm);
  if (record.redone) object.add("redone", *record.redone);
  return object.finish();
}

std::string to_json(const EvalRecord& record) {
  ObjectText object;
  object.add("iteration", record.iteration);
  if (!record.validation_set.empty()) object.add("validation_set", record.validation_set);
  object.add("validation_loss", record.validation_loss);
  object.add("validation_tokens", record.validation_tokens);
  object.add("seconds", record.seconds);
  return object.finish();
}

std::string to_json(const RunFigures& figures) {
  ObjectText memory, communication, summary, line;
  for (const auto& [kind, bytes] : figures.peak_bytes) memory.add(kind.c_str(), bytes);
  for (const auto& [group, operations] : figures.communication_bytes_per_step) {
    ObjectText object;
    for (const auto& [operation, bytes] : operations) object.add(operation.c_str(), bytes);
    communication.add(group.c_str(), object);
  }
  summary.add("peak_bytes", memory);
  summary.add("peak_rss_bytes", figures.peak_rss_bytes);
  summary.add("communication_bytes_per_step", communication);
  summary.add("peak_chunk_stashes", figures.peak_chunk_stashes);
  summary.add("recomputed_flops", figures.recomputed_flops);
  summary.add("model_flops", figures.model_flops);
  line.add("summary", summary);
  return line.finish();
}

JsonLog::JsonLog(const std::string& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) throw IoError(str_cat("--log-json ", path, ": cannot open: ", std::strerror(errno)));
  struct stat info {};
  char last = '\n';
  if (::fstat(fd_, &info) == 0 && info.st_size > 0 && ::pread(fd_, &last, 1, info.st_size - 1) == 1 && last != '\n')
    write_line("");
}

JsonLog::~JsonLog() {
  if (fd_ >= 0) ::close(fd_);
}

void JsonLog::write_line(const std::string& json) {
  const std::string line = json + "\n";
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t put = ::write(fd_, line.data() + done, line.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) throw IoError(str_cat("--log-json ", path_, ": cannot write: ", std::strerror(errno)));
    done += static_cast<std::size_t>(put);
  }
}

}  // namespace megatron::metrics
