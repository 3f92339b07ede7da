#include "metrics/console.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace megatron::metrics {
namespace {

/// What a console wrote.
template <typename Use>
std::string written(bool is_terminal, int width, Use&& use) {
  char* data = nullptr;
  std::size_t size = 0;
  std::FILE* out = ::open_memstream(&data, &size);
  {
    Console console(out, is_terminal, width);
    use(console);
  }
  std::fclose(out);
  std::string text(data, size);
  std::free(data);
  return text;
}

void some_lines(Console& console) {
  console.progress("step 1");
  console.line("a line");
  console.progress("a progress text that is too long");
  console.line("framed\n");
}

TEST(Console, PlainLinesInAFile) { EXPECT_EQ(written(false, 0, some_lines), "a line\nframed\n"); }

TEST(Console, ProgressLineOnATerminal) {
  EXPECT_EQ(written(true, 11, some_lines), "\r\x1b[Kstep 1\r\x1b[Ka line\n\r\x1b[Ka progress\r\x1b[Kframed\n");
}

TEST(Console, AFileIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  EXPECT_FALSE(Console(file).is_terminal());
  std::fclose(file);
}

}  // namespace
}  // namespace megatron::metrics
