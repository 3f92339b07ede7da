#include "metrics/line_writer.h"

namespace megatron::metrics {

LineWriter::LineWriter(std::FILE* out) : out_(out), thread_([this] { loop(); }) {}

LineWriter::~LineWriter() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void LineWriter::write(const std::string& text) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_ += text;
  }
  wake_.notify_all();
}

void LineWriter::loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::string text;
    text.swap(waiting_);
    lock.unlock();
    std::fwrite(text.data(), 1, text.size(), out_);
    std::fflush(out_);
    lock.lock();
  }
}

}  // namespace megatron::metrics
