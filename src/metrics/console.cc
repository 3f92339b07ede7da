#include "metrics/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace megatron::metrics {
namespace {

int terminal_width(int fd) {
  struct winsize size {};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Console::Console(std::FILE* out)
    : out_(out), is_terminal_(::isatty(::fileno(out)) == 1), width_(is_terminal_ ? terminal_width(::fileno(out)) : 0) {}

Console::~Console() { clear_progress(); }

void Console::clear_progress() {
  if (!progress_shown_) return;
  std::fputs("\r\x1b[K", out_);
  std::fflush(out_);
  progress_shown_ = false;
}

void Console::progress(const std::string& text) {
  if (!is_terminal_) return;
  const auto room = static_cast<std::size_t>(width_ > 1 ? width_ - 1 : 1);
  std::fprintf(out_, "\r\x1b[K%s", text.substr(0, room).c_str());
  std::fflush(out_);
  progress_shown_ = true;
}

void Console::line(const std::string& text) {
  if (writer_ != nullptr) return writer_->write(text.empty() || text.back() != '\n' ? text + "\n" : text);
  clear_progress();
  std::fputs(text.c_str(), out_);
  if (text.empty() || text.back() != '\n') std::fputc('\n', out_);
  std::fflush(out_);
}

}  // namespace megatron::metrics
