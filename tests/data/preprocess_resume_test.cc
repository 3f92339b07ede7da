// What preprocessing leaves behind when it dies or the disk is full, and how the next run continues.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <new>

#include "base/check.h"
#include "compressed.h"
#include "data/indexed_dataset.h"
#include "data/preprocess.h"
#include "temporary_folder.h"

namespace megatron::data {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

const tokenizer::Tokenizer& bytes() {
  static const auto tokenizer = tokenizer::create_tokenizer("ByteLevel");
  return *tokenizer;
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

/// Exit status of what `body` does in a process of its own.
int in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Two inputs, one of them compressed, with a bad line each; the undisturbed result beside them.
class Interrupted : public ::testing::Test {
 protected:
  Interrupted() {
    std::string json = "\xef\xbb\xbf", text;
    for (int i = 0; i < 4000; ++i) {
      const std::string words(static_cast<std::size_t>(1 + i % 91), static_cast<char>('a' + i % 26));
      json += i == 3500 ? "broken\r\n" : "{\"text\": \"" + words + "\"}\r\n";
      text += "{\"text\": \"" + words + "\", \"n\": [1]}\n";
    }
    write_file(folder_ / "a.jsonl", json);
    write_file(folder_ / "b.jsonl.gz", testing::gzip(text + "{}\n" + text));
    config_.inputs = {folder_ / "a.jsonl", folder_ / "b.jsonl.gz"};
    config_.append_eod = true;
    config_.lenient = true;
    config_.workers = 2;
    config_.block_bytes = 625;
    config_.resume_bytes = 30'000;
    config_.output_prefix = folder_ / "whole";
    whole_ = preprocess(config_, bytes());
    EXPECT_EQ(whole_.documents, 3999 + 8000);
    config_.output_prefix = folder_ / "out";
  }

  void expect_equal_files() const {
    for (const char* suffix : {".bin", ".idx", ".tokenizer.json"})
      EXPECT_EQ(read_file((folder_ / "out_text_document") + suffix),
                read_file((folder_ / "whole_text_document") + suffix))
          << suffix;
    EXPECT_FALSE(exists(folder_ / "out.resume"));
    EXPECT_FALSE(exists(folder_ / "out_text_document.bin.tmp"));
  }

  TemporaryFolder folder_;
  PreprocessConfig config_;
  PreprocessProgress whole_;
};

TEST_F(Interrupted, TheNextRunContinuesWithTheSameBytes) {
  for (const int dies_at : {1, 3, 8, 9, 6}) {
    const int status = in_child([&] {
      int reports = 0;
      preprocess(config_, bytes(), [&](const PreprocessProgress&) {
        if (++reports == dies_at) ::kill(::getpid(), SIGKILL);
      });
    });
    EXPECT_EQ(status, 128 + SIGKILL) << dies_at;
    EXPECT_FALSE(exists(folder_ / "out_text_document.idx"));
    EXPECT_FALSE(exists(folder_ / "out_text_document.bin"));
  }
  config_.workers = 1;  // does not change what is written
  std::int64_t resumed = 0;
  const PreprocessProgress result =
      preprocess(config_, bytes(), [&](const PreprocessProgress& progress) { resumed = progress.resumed_documents; });
  EXPECT_TRUE(result.resumed);
  EXPECT_GT(resumed, 1000);
  EXPECT_EQ(result.documents, whole_.documents);
  EXPECT_EQ(result.tokens, whole_.tokens);
  EXPECT_EQ(result.skipped, whole_.skipped);
  EXPECT_EQ(result.skipped_lines, whole_.skipped_lines);
  expect_equal_files();
}

/// Whatever ends a run keeps what was secured, not only a kill.
TEST_F(Interrupted, AFailureThatIsNoBadLineKeepsWhatIsDone) {
  int reports = 0;
  EXPECT_THROW(preprocess(config_, bytes(),
                          [&](const PreprocessProgress&) {
                            if (++reports == 6) throw std::bad_alloc();
                          }),
               std::bad_alloc);
  EXPECT_TRUE(exists(folder_ / "out_text_document.bin.tmp"));
  // A file that cannot be opened for now is no reason to throw away the others.
  std::filesystem::rename(folder_ / "out_text_document.idx.documents.tmp", folder_ / "aside");
  std::filesystem::create_directory(folder_ / "out_text_document.idx.documents.tmp");
  EXPECT_THROW(preprocess(config_, bytes()), IoError);
  std::filesystem::remove(folder_ / "out_text_document.idx.documents.tmp");
  std::filesystem::rename(folder_ / "aside", folder_ / "out_text_document.idx.documents.tmp");
  const PreprocessProgress result = preprocess(config_, bytes());
  EXPECT_TRUE(result.resumed);
  EXPECT_GT(result.resumed_documents, 1000);
  EXPECT_EQ(result.documents, whole_.documents);
  expect_equal_files();
}

TEST_F(Interrupted, AnotherConfigurationStartsAnew) {
  const auto die = [&] {
    in_child([&] {
      int reports = 0;
      preprocess(config_, bytes(), [&](const PreprocessProgress&) {
        if (++reports == 20) ::_exit(9);
      });
    });
  };
  die();
  ASSERT_TRUE(exists(folder_ / "out.resume"));
  config_.append_eod = false;
  EXPECT_FALSE(preprocess(config_, bytes()).resumed);
  config_.append_eod = true;
  die();
  ASSERT_TRUE(exists(folder_ / "out.resume"));
  write_file(folder_ / "a.jsonl", read_file(folder_ / "a.jsonl") + "{\"text\": \"more\"}\n");
  const PreprocessProgress result = preprocess(config_, bytes());
  EXPECT_FALSE(result.resumed);
  EXPECT_EQ(result.documents, whole_.documents + 1);
}

TEST_F(Interrupted, TwoRunsWithOneNameAreRefused) {
  bool refused = false;
  preprocess(config_, bytes(), [&](const PreprocessProgress&) {
    if (refused) return;
    try {
      preprocess(config_, bytes());
    } catch (const IoError& error) {
      refused = std::string(error.what()).find("is being written by another process") != std::string::npos;
    }
  });
  EXPECT_TRUE(refused);
  expect_equal_files();
}

TEST_F(Interrupted, AFullDiskKeepsWhatWasSecured) {
  const auto with_limit = [&](std::int64_t limit, const char* expected) {
    return in_child([&] {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit size{static_cast<rlim_t>(limit), static_cast<rlim_t>(limit)};
      ::setrlimit(RLIMIT_FSIZE, &size);
      try {
        preprocess(config_, bytes());
      } catch (const IoError& error) {
        const std::string text = error.what();
        ::_exit(text.find("File too large") != std::string::npos && text.find(expected) != std::string::npos ? 7 : 8);
      }
    });
  };
  EXPECT_EQ(with_limit(500'000, "the same command continues there"), 7);
  EXPECT_FALSE(exists(folder_ / "out_text_document.idx"));
  EXPECT_FALSE(exists(folder_ / "out_text_document.bin"));
  const PreprocessProgress result = preprocess(config_, bytes());
  EXPECT_TRUE(result.resumed);
  expect_equal_files();
}

TEST_F(Interrupted, AFullFileSystem) {
  const std::string place = folder_ / "small";
  ASSERT_EQ(::mkdir(place.c_str(), 0777), 0);
  if (::mount("tmpfs", place.c_str(), "tmpfs", 0, "size=600k") != 0) GTEST_SKIP() << "a tmpfs cannot be mounted here";
  config_.output_prefix = place + "/out";
  std::string message;
  try {
    preprocess(config_, bytes());
  } catch (const IoError& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
  EXPECT_FALSE(exists(place + "/out_text_document.idx"));
  EXPECT_FALSE(exists(place + "/out_text_document.bin"));
  EXPECT_EQ(::mount("tmpfs", place.c_str(), "tmpfs", MS_REMOUNT, "size=16m"), 0);
  EXPECT_NO_THROW(preprocess(config_, bytes()));
  EXPECT_EQ(read_file(place + "/out_text_document.bin"), read_file(folder_ / "whole_text_document.bin"));
  EXPECT_EQ(read_file(place + "/out_text_document.idx"), read_file(folder_ / "whole_text_document.idx"));
  EXPECT_EQ(::umount(place.c_str()), 0);
}

}  // namespace
}  // namespace megatron::data
