// megatron generate as a user runs it.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <string>

#include "base/check.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::TemporaryFolder;

struct Finished {
  int status = -1;
  std::string out;
};

Finished shell(const std::string& arguments, const char* streams = "2>&1") {
  const std::string command = str_cat("'", MEGATRON_BINARY, "' ", arguments, " ", streams);
  std::FILE* const pipe = popen(command.c_str(), "r");
  Finished done;
  std::array<char, 4096> buffer;
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    done.out.append(buffer.data(), n);
  const int status = pclose(pipe);
  done.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
  return done;
}

class CliGenerate : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(folder_ / "corpus.txt");
    for (int i = 0; i < 300; ++i) text << "abcabcabcabcabcabcabcabcabcabcabcabcabc\n";
    text.close();
    const Finished made = shell(str_cat("preprocess --input ", quoted("corpus.txt"), " --output-prefix ",
                                        quoted("corpus"), " --tokenizer-type ByteLevel --append-eod --workers 1"));
    ASSERT_EQ(made.status, 0) << made.out;
    const Finished trained = shell(
        str_cat("train --num-layers 1 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --micro-batch-size 4 "
                "--global-batch-size 8 --train-iters 200 --lr 1e-2 --lr-warmup-iters 20 --init-method-std 0.1 "
                "--tokenizer-type ByteLevel --split 100,0,0 "
                "--hidden-dropout 0 --attention-dropout 0 --threads-per-rank 1 --save-interval 200 --data-path ",
                quoted("corpus_text_document"), " --save ", quoted("ck")));
    ASSERT_EQ(trained.status, 0) << trained.out;
  }
  /// A path in the folder as a word for the shell.
  std::string quoted(const char* name) const { return str_cat("'", folder_.path(), "/", name, "'"); }
  std::string load() const { return str_cat("generate --load ", quoted("ck"), " "); }
  TemporaryFolder folder_;
};

TEST_F(CliGenerate, ContinuesThePromptUnderEveryLayoutAlike) {
  const Finished greedy = shell(load() + "--prompt abcabc --num-tokens 9 --temperature 0");
  EXPECT_EQ(greedy.status, 0);
  EXPECT_EQ(greedy.out, "abcabcabcabcabc\n");
  EXPECT_EQ(shell(load() + "--prompt abcabc --num-tokens 9 --top-k 1").out, greedy.out);
  const std::string sampled = load() + "--prompt b --num-tokens 20 --temperature 2 --seed 5";
  const Finished one = shell(sampled);
  EXPECT_EQ(shell(sampled + " --tensor-model-parallel-size 2").out, one.out);
  std::ofstream(folder_ / "prompt.txt") << "b";
  EXPECT_EQ(
      shell(str_cat(load(), "--prompt-file ", quoted("prompt.txt"), " --num-tokens 20 --temperature 2 --seed 5")).out,
      one.out);

  // Half a character waits for its rest and is printed as it stands where none comes.
  std::ofstream(folder_ / "prompt.txt") << "abc\xe4";
  const Finished half =
      shell(str_cat(load(), "--prompt-file ", quoted("prompt.txt"), " --num-tokens 2 --temperature 0"));
  EXPECT_EQ(half.out.rfind("abc\xe4", 0), 0U) << half.out;
  EXPECT_EQ(half.out.size(), 7U) << half.out;

  // What has a meaning here is taken, and what has none is told.
  const Finished layout = shell(load() +
                                "--prompt abcabc --num-tokens 9 --top-k 1 --tensor-model-parallel-size 2 "
                                "--sequence-parallel --threads-per-rank 1 --distributed-timeout-minutes 2 "
                                "--distributed-backend local --seed 7 --context-parallel-size 1");
  EXPECT_EQ(layout.status, 0) << layout.out;
  EXPECT_NE(layout.out.find("notice: --sequence-parallel has no effect"), std::string::npos) << layout.out;
  EXPECT_NE(layout.out.find(greedy.out), std::string::npos) << layout.out;

  // Mistakes: one line and status 2.
  const auto refused = [&](const std::string& arguments, const std::string& words) {
    const Finished done = shell(load() + arguments);
    EXPECT_EQ(done.status, 2) << done.out;
    EXPECT_NE(done.out.find(words), std::string::npos) << done.out;
    EXPECT_EQ(std::count(done.out.begin(), done.out.end(), '\n'), 1) << done.out;
  };
  refused("--prompt a --top-k 3 --top-p 0.5", "--top-k 3 together with --top-p 0.5");
  refused(str_cat("--prompt ", std::string(33, 'a')), "33 tokens");
  refused("--num-tokens 3", "--prompt");
  refused("--prompt a --num-layers 3", "--num-layers");
  refused("--prompt a --lr 5 --train-iters 5 --log-json f --bf16 --global-batch-size 4",
          "--bf16, --global-batch-size, --log-json, --lr, --train-iters: model, tokenizer and training come from the "
          "checkpoint");
  refused("--prompt a --pipeline-model-parallel-size 2", "--num-layers 1");
  const Finished missing = shell(str_cat("generate --load ", quoted("none"), " --prompt a"));
  EXPECT_NE(missing.status, 0);
  EXPECT_NE(missing.out.find("none"), std::string::npos) << missing.out;
}

}  // namespace
}  // namespace megatron
