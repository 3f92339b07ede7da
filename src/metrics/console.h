// Where a run's lines go: a terminal, with one live progress line at the bottom, or a file, with plain lines only.
#pragma once

#include <cstdio>
#include <string>

namespace megatron::metrics {

class Console {
 public:
  /// `out` is borrowed. A progress line is shown if it is a terminal.
  explicit Console(std::FILE* out);
  Console(std::FILE* out, bool is_terminal, int width) : out_(out), is_terminal_(is_terminal), width_(width) {}
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
};

}  // namespace megatron::metrics
