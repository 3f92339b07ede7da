#include "metrics/console.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <thread>

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

// A pipe holds 64 KiB: a console that writes itself would wait here for ever.
TEST(Console, AWriterDoesNotWaitForTheReader) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::FILE* out = ::fdopen(ends[1], "w");
  std::string expected, got;
  std::thread reader;
  {
    Console console(std::make_unique<LineWriter>(out));
    for (int i = 0; i < 300; ++i) {
      const std::string line(1000, static_cast<char>('a' + i % 26));
      console.line(line);
      expected += line + "\n";
    }
    console.line("framed\n");
    expected += "framed\n";
    reader = std::thread([&] {
      char buffer[4096];
      for (ssize_t count; (count = ::read(ends[0], buffer, sizeof(buffer))) > 0;)
        got.append(buffer, static_cast<std::size_t>(count));
    });
  }
  std::fclose(out);
  reader.join();
  ::close(ends[0]);
  EXPECT_EQ(got, expected);
}

}  // namespace
}  // namespace megatron::metrics
