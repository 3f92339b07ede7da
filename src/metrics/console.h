// Where a run's lines go: a terminal, with one live progress line at the bottom, or a file, with plain lines only.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "metrics/line_writer.h"

namespace megatron::metrics {

class Console {
 public:
  /// `out` is borrowed. A progress line is shown if it is a terminal.
  explicit Console(std::FILE* out);
  Console(std::FILE* out, bool is_terminal, int width) : out_(out), is_terminal_(is_terminal), width_(width) {}
  /// Plain lines, written by a thread of their own: for the ranks of a launcher, which may stop reading.
  explicit Console(std::unique_ptr<LineWriter> writer)
      : out_(nullptr), is_terminal_(false), width_(0), writer_(std::move(writer)) {}
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  bool is_terminal() const { return is_terminal_; }
  /// Replaces the progress line (cut to the terminal's width); nothing in a file.
  void progress(const std::string& text);
  /// Prints a line above the progress line; adds the newline unless `text` ends in one. Flushed.
  void line(const std::string& text);

 private:
  void clear_progress();

  std::FILE* out_;
  bool is_terminal_;
  int width_;
  bool progress_shown_ = false;
  std::unique_ptr<LineWriter> writer_;  // null: written at once
};

}  // namespace megatron::metrics
