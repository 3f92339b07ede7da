// megatron train as a user runs it: the binary, its files, its exit statuses, its signals.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "base/check.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::TemporaryFolder;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

struct Finished {
  int status = -1;
  std::string out;  // both streams
};

/// The binary as a child process, its output in a file.
class Child {
 public:
  Child(const TemporaryFolder& folder, std::vector<std::string> args) : out_(folder / "out.txt") {
    std::filesystem::remove(out_);
    args.insert(args.begin(), MEGATRON_BINARY);
    std::vector<char*> words;
    for (std::string& arg : args) words.push_back(arg.data());
    words.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      if (std::freopen(out_.c_str(), "w", stdout) == nullptr || dup2(1, 2) < 0) _exit(125);
      execv(words[0], words.data());
      _exit(126);
    }
  }
  pid_t pid() const { return pid_; }
  std::string output() const { return read_file(out_); }
  /// Waits until the output holds `text`.
  bool wait_for(const std::string& text) const {
    for (int i = 0; i < 3000; ++i) {
      if (output().find(text) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  Finished wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status), output()};
  }

 private:
  std::string out_;
  pid_t pid_;
};

Finished run(const TemporaryFolder& folder, std::vector<std::string> args) {
  return Child(folder, std::move(args)).wait();
}

/// A configuration of a tiny model and a corpus of bytes.
std::vector<std::string> tiny(const TemporaryFolder& folder, std::vector<std::string> more) {
  if (!std::filesystem::exists(folder / "corpus_text_document.idx")) {
    std::ofstream text(folder / "corpus.txt");
    for (int i = 0; i < 400; ++i) text << "line " << i << " of a text about nothing much, " << i * 7 % 13 << "\n";
    text.close();
    const Finished made =
        run(folder, {"preprocess", "--input", folder / "corpus.txt", "--output-prefix", folder / "corpus",
                     "--tokenizer-type", "ByteLevel", "--append-eod", "--workers", "1"});
    EXPECT_EQ(made.status, 0) << made.out;
    std::ofstream(folder / "run.yaml")
        << "num_layers: 2\nhidden_size: 32\nnum_attention_heads: 4\nseq_length: 32\nmicro_batch_size: 1\n"
           "global_batch_size: 4\ntrain_iters: 6\nlr: 1e-3\nlr_warmup_iters: 1\ntokenizer_type: ByteLevel\nsplit: "
           "90,10,0\n"
           "log_interval: 1\neval_iters: 1\nthreads_per_rank: 1\n";
  }
  std::vector<std::string> args = {"train", "--config", folder / "run.yaml", "--data-path",
                                   folder / "corpus_text_document"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

/// Steps and evaluations; the last line of each run is its summary.
std::vector<json> read_log(const std::string& path) {
  std::vector<json> records;
  std::ifstream in(path);
  bool ended = false;
  for (std::string line; std::getline(in, line);) {
    json record = json::parse(line);
    ended = record.contains("summary");
    if (!ended) records.push_back(std::move(record));
  }
  EXPECT_TRUE(ended) << path << " does not end with a summary";
  return records;
}

TEST(CliTrain, PrintsMegatronsLineAndTheJsonLogAgrees) {
  const TemporaryFolder folder;
  const Finished done = run(folder, tiny(folder, {"--log-json", folder / "log", "--eval-interval", "3"}));
  ASSERT_EQ(done.status, 0) << done.out;
  const std::regex line(
      R"(iteration +(\d+)/ +6 \| consumed samples: +(\d+) \| elapsed time per iteration \(ms\): [\d.]+ \| learning rate: (\S+) \| global batch size: +4 \| lm loss: (\S+) \|)");
  std::vector<json> steps, evaluations;
  for (const json& record : read_log(folder / "log"))
    (record.contains("validation_loss") ? evaluations : steps).push_back(record);
  ASSERT_EQ(steps.size(), 6U);
  std::size_t i = 0;
  for (std::sregex_iterator it(done.out.begin(), done.out.end(), line), end; it != end; ++it, ++i) {
    ASSERT_LT(i, steps.size());
    EXPECT_EQ(std::stoi((*it)[1]), steps[i]["iteration"].get<int>());
    EXPECT_EQ(std::stoi((*it)[2]), steps[i]["consumed_samples"].get<int>());
    EXPECT_NEAR(std::stod((*it)[3]), steps[i]["lr"].get<double>(), 1e-9);
    EXPECT_NEAR(std::stod((*it)[4]), steps[i]["loss"].get<double>(), 1e-6);
  }
  EXPECT_EQ(i, 6U);
  EXPECT_EQ(steps[0]["lr"].get<double>(), 0.0);
  EXPECT_EQ(steps[1]["lr"].get<double>(), 1e-3);
  for (const char* key : {"iteration", "consumed_samples", "trained_tokens", "loss", "grad_norm", "lr",
                          "tokens_per_second", "step_seconds", "forward_seconds", "backward_seconds", "skipped", "nan"})
    EXPECT_TRUE(steps[0].contains(key)) << key;
  ASSERT_EQ(evaluations.size(), 3U);  // at 3, at 6 and at the end
  EXPECT_EQ(evaluations[0]["iteration"], 3);
  EXPECT_NE(done.out.find(" validation loss at iteration 6 on validation set | lm loss value: "), std::string::npos);
  EXPECT_NE(done.out.find("average per iteration"), std::string::npos);
}

/// As with --skip-train, but for the words: no step, no checkpoint, the evaluations at the end.
TEST(CliTrain, ALengthWithoutAStepOnlyEvaluates) {
  const TemporaryFolder folder;
  const Finished skipped = run(folder, tiny(folder, {"--skip-train", "--log-json", folder / "skipped"}));
  ASSERT_EQ(skipped.status, 0) << skipped.out;
  const Finished none = run(folder, tiny(folder, {"--train-iters", "0", "--log-json", folder / "none", "--save",
                                                  folder / "saved", "--save-interval", "1"}));
  ASSERT_EQ(none.status, 0) << none.out;
  EXPECT_NE(none.out.find("training is skipped: --train-iters 0 is less than one step"), std::string::npos) << none.out;
  EXPECT_FALSE(std::filesystem::exists(folder / "saved/latest_checkpointed_iteration.txt"));
  const auto evaluation = [&](const char* name) {
    std::ifstream in(folder / name);  // without a step there is no summary either
    for (std::string line; std::getline(in, line);)
      if (json record = json::parse(line); record.contains("validation_loss")) return record["validation_loss"];
    return json();
  };
  EXPECT_FALSE(evaluation("none").is_null());
  EXPECT_EQ(evaluation("none"), evaluation("skipped"));
  const Finished traced = run(folder, tiny(folder, {"--train-iters", "0", "--trace", folder / "trace"}));
  EXPECT_EQ(traced.status, 2);
  EXPECT_NE(traced.out.find("there is no step to record"), std::string::npos) << traced.out;
}

/// Batches 2, 2, 2, 2, 4, 4: stopped in the ramp, the run goes on with it at another layout, and the rate ends at its
/// minimum although the first steps were small.
TEST(CliTrain, AGrowingBatchResumesAndEndsAtTheSmallestRate) {
  const TemporaryFolder folder;
  const auto ramp = [&](std::vector<std::string> more) {
    std::vector<std::string> args = tiny(folder, {"--rampup-batch-size", "2", "2", "8", "--lr-decay-iters", "5",
                                                  "--min-lr", "1e-4", "--save-interval", "100"});
    args.insert(args.end(), more.begin(), more.end());
    return run(folder, args);
  };
  const Finished straight = ramp({"--log-json", folder / "straight"});
  ASSERT_EQ(straight.status, 0) << straight.out;
  ASSERT_EQ(ramp({"--save", folder / "saved", "--exit-interval", "3"}).status, 0);
  const Finished rest = ramp({"--load", folder / "saved", "--log-json", folder / "rest", "--world-size", "2",
                              "--tensor-model-parallel-size", "2"});
  ASSERT_EQ(rest.status, 0) << rest.out;
  std::vector<json> steps, later;
  for (const json& record : read_log(folder / "straight"))
    if (record.contains("loss")) steps.push_back(record);
  for (const json& record : read_log(folder / "rest"))
    if (record.contains("loss")) later.push_back(record);
  ASSERT_EQ(steps.size(), 6U);
  ASSERT_EQ(later.size(), 3U);
  const int sizes[] = {2, 2, 2, 2, 4, 4}, consumed[] = {2, 4, 6, 8, 12, 16};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(steps[i]["global_batch_size"], sizes[i]);
    EXPECT_EQ(steps[i]["consumed_samples"], consumed[i]);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    for (const char* key : {"iteration", "global_batch_size", "consumed_samples", "lr"})
      EXPECT_EQ(later[i][key], steps[i + 3][key]) << key;
    EXPECT_NEAR(later[i]["loss"].get<double>() / steps[i + 3]["loss"].get<double>(), 1.0, 1e-5);
  }
  EXPECT_EQ(steps[5]["lr"].get<double>(), 1e-4);
  // A size on the way that the ranks cannot share is told before anything starts.
  const Finished refused = ramp({"--world-size", "4"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.out.find("global batch 2 (from sample 0 on) is not k x micro-batch 1 x data parallel 4"),
            std::string::npos)
      << refused.out;
}

TEST(CliTrain, AResumedRunAppendsToTheLogAndEqualsTheStraightOne) {
  const TemporaryFolder folder;
  ASSERT_EQ(run(folder, tiny(folder, {"--log-json", folder / "straight"})).status, 0);
  const std::vector<std::string> save = {"--save", folder / "ck", "--save-interval", "3", "--log-json", folder / "log"};
  std::vector<std::string> first = save;
  first.insert(first.end(), {"--exit-interval", "3"});
  ASSERT_EQ(run(folder, tiny(folder, first)).status, 0);
  std::vector<std::string> second = save;
  second.insert(second.end(), {"--load", folder / "ck", "--tensor-model-parallel-size", "2", "--world-size", "4"});
  const Finished rest = run(folder, tiny(folder, second));
  ASSERT_EQ(rest.status, 0) << rest.out;
  EXPECT_NE(rest.out.find("iteration 3, next sample index 12"), std::string::npos) << rest.out;
  const auto straight = read_log(folder / "straight"), resumed = read_log(folder / "log");
  ASSERT_EQ(straight.size(), 7U);
  ASSERT_EQ(resumed.size(), 7U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(resumed[i]["iteration"], straight[i]["iteration"]);
    EXPECT_NEAR(resumed[i]["loss"].get<double>() / straight[i]["loss"].get<double>(), 1.0, i < 3 ? 0.0 : 1e-5);
    EXPECT_EQ(resumed[i]["lr"], straight[i]["lr"]);
  }
  // The first command once more would begin anew in the folder of a finished run.
  EXPECT_EQ(rest.out.find("of an earlier run"), std::string::npos);
  const Finished anew = run(folder, tiny(folder, first));
  EXPECT_NE(anew.out.find("holds iteration 6 of an earlier run; this one starts at iteration 0"), std::string::npos)
      << anew.out;
}

TEST(CliTrain, ASignalSavesAndEndsWithItsStatus) {
  const TemporaryFolder folder;
  for (const int number : {SIGTERM, SIGINT}) {
    const std::string name = number == SIGTERM ? "SIGTERM" : "SIGINT";
    Child child(folder, tiny(folder, {"--train-iters", "2000", "--save", folder / name, "--save-interval", "100000",
                                      "--tensor-model-parallel-size", "2"}));
    ASSERT_TRUE(child.wait_for("iteration        2/"));
    kill(child.pid(), number);
    const Finished done = child.wait();
    EXPECT_EQ(done.status, 128 + number);
    std::smatch match;
    const std::regex words("stopped by " + name + " after iteration (\\d+), saved (\\S+)");
    ASSERT_TRUE(std::regex_search(done.out, match, words)) << done.out;
    EXPECT_TRUE(std::filesystem::exists(std::string(match[2]) + "/manifest.json"));
    EXPECT_NE(read_file(folder / (name + "/latest_checkpointed_iteration.txt")).find(match[1]), std::string::npos);
  }
}

TEST(CliTrain, ASignalWithoutSaveSaysThatNothingWasSaved) {
  const TemporaryFolder folder;
  Child child(folder, tiny(folder, {"--train-iters", "2000", "--log-json", folder / "log"}));
  ASSERT_TRUE(child.wait_for("iteration        2/"));
  kill(child.pid(), SIGTERM);
  const Finished done = child.wait();
  EXPECT_EQ(done.status, 143);
  EXPECT_GE(read_log(folder / "log").size(), 2U);  // and what the run cost
  EXPECT_NE(done.out.find("nothing was saved"), std::string::npos) << done.out;
}

TEST(CliTrain, ASignalDuringEvaluationSavesToo) {
  const TemporaryFolder folder;
  Child child(folder, tiny(folder, {"--eval-interval", "2", "--eval-iters", "30000", "--save", folder / "ck",
                                    "--save-interval", "100", "--train-iters", "4"}));
  ASSERT_TRUE(child.wait_for("iteration        2/"));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  kill(child.pid(), SIGTERM);
  const Finished done = child.wait();
  EXPECT_EQ(done.status, 143);
  EXPECT_NE(done.out.find("stopped by SIGTERM after iteration 2, saved " + (folder / "ck/iter_0000002")),
            std::string::npos)
      << done.out;
}

TEST(CliTrain, ASecondSignalEndsAtOnce) {
  const TemporaryFolder folder;
  // The rank is held up inside a step by a fault, so the first signal cannot be honoured soon.
  Child child(folder, tiny(folder, {"--train-iters", "2000", "--tensor-model-parallel-size", "2", "--inject-fault",
                                    "rank=1,iteration=3,kind=delay,seconds=30"}));
  ASSERT_TRUE(child.wait_for("iteration        2/"));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  kill(child.pid(), SIGTERM);
  ASSERT_TRUE(child.wait_for("received SIGTERM"));
  kill(child.pid(), SIGTERM);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(child.wait().status, 143);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(CliTrain, NotANumberEndsWithOneLineAndStatusOne) {
  const TemporaryFolder folder;
  const Finished done =
      run(folder, tiny(folder, {"--tensor-model-parallel-size", "2", "--inject-fault", "rank=1,iteration=3,kind=nan"}));
  EXPECT_EQ(done.status, 1) << done.out;
  EXPECT_NE(done.out.find("iteration 3: NaN or Inf in"), std::string::npos) << done.out;
}

TEST(CliTrain, AFailingRankEndsTheRunNamingIt) {
  const TemporaryFolder folder;
  const Finished done = run(
      folder, tiny(folder, {"--tensor-model-parallel-size", "2", "--inject-fault", "rank=1,iteration=3,kind=throw"}));
  EXPECT_NE(done.status, 0);
  EXPECT_NE(done.out.find("rank 1"), std::string::npos) << done.out;
}

TEST(CliTrain, MistakesAreOneLineEachAndStatusTwo) {
  const TemporaryFolder folder;
  const Finished done = run(folder, tiny(folder, {"--num-attention-heads", "5", "--no-such-option", "1"}));
  EXPECT_EQ(done.status, 2);
  EXPECT_NE(done.out.find("--num-attention-heads 5"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("--no-such-option"), std::string::npos) << done.out;
}

TEST(CliTrain, FaultsThatCannotStrikeAndFilesThatCannotBeWrittenAreRefusedFirst) {
  const TemporaryFolder folder;
  const Finished fault = run(folder, tiny(folder, {"--inject-fault", "rank=1,iteration=3,kind=throw"}));
  EXPECT_EQ(fault.status, 2) << fault.out;
  EXPECT_NE(fault.out.find("rank=1 is outside the world of 1 rank; nearest: rank=0"), std::string::npos) << fault.out;
  const Finished file = run(folder, tiny(folder, {"--log-json", "/nowhere/at/all"}));
  EXPECT_EQ(file.status, 1) << file.out;
  EXPECT_NE(file.out.find("--log-json /nowhere/at/all: cannot open"), std::string::npos) << file.out;
  EXPECT_EQ(file.out.find("opening the data"), std::string::npos) << file.out;
}

/// Before anything of that size is made, and before data are opened for it.
TEST(CliTrain, ARunThatTheMachineCannotHoldIsRefusedAtItsStart) {
  const TemporaryFolder folder;
  for (const auto& size :
       {std::vector<std::string>{"--micro-batch-size", "1000000000", "--global-batch-size", "1000000000"},
        std::vector<std::string>{"--num-layers", "100000", "--hidden-size", "4096", "--num-attention-heads", "8"}}) {
    const Finished done = run(folder, tiny(folder, size));
    EXPECT_EQ(done.status, 1) << done.out;
    EXPECT_NE(done.out.find("out of memory: the run needs "), std::string::npos) << done.out;
    EXPECT_EQ(done.out.find("opening the data"), std::string::npos) << done.out;
  }
}

TEST(CliTrain, AVocabularySmallerThanTheTokenizersIsRefusedWithBothNumbers) {
  const TemporaryFolder folder;
  const Finished done = run(folder, tiny(folder, {"--vocab-size", "200"}));
  EXPECT_EQ(done.status, 2) << done.out;
  EXPECT_NE(done.out.find("200"), std::string::npos) << done.out;
  EXPECT_NE(done.out.find("257"), std::string::npos) << done.out;
}

TEST(CliTrain, TheMeshAndTheLayersOfEachStageArePrinted) {
  const TemporaryFolder folder;
  const Finished done = run(folder, tiny(folder, {"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size",
                                                  "2", "--train-iters", "2"}));
  ASSERT_EQ(done.status, 0) << done.out;
  for (const char* text :
       {"rank 0: tp 0, pp 0, dp 0", "rank 3: tp 1, pp 1, dp 0", "stage 0: layer 0", "stage 1: layer 1"})
    EXPECT_NE(done.out.find(text), std::string::npos) << text << "\n" << done.out;
}

}  // namespace
}  // namespace megatron
