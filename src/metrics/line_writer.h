// Writes text to a file from a thread of its own, so that the caller never waits for a reader who has stopped reading.
#pragma once

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

namespace megatron::metrics {

/// A launcher that ends a run stops reading the ranks' output first; whoever waited in a write could not save any more.
class LineWriter {
 public:
  /// `out` is borrowed and written by nobody else.
  explicit LineWriter(std::FILE* out);
  /// Waits until everything has been written.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  /// Takes the text and returns at once; texts come out in order. Thread-safe.
  void write(const std::string& text);

 private:
  void loop();

  std::FILE* out_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::string waiting_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace megatron::metrics
