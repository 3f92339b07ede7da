#include "checkpoint/writer.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <set>

#include "checkpoint/file_io.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"
#include "sharded_state.h"
#include "support/temporary_folder.h"

namespace megatron::checkpoint {
namespace {

namespace fs = std::filesystem;

const char* const kState = "{\"iteration\": 10}\n";

WriteOptions small_pieces() {
  WriteOptions options;
  options.max_file_bytes = 40000;
  options.max_panel_bytes = 300;
  return options;
}

std::map<std::string, std::string> contents(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    if (entry.is_regular_file())
      files[fs::relative(entry.path(), directory).string()] = read_text_file(entry.path().string());
  return files;
}

void save(const TestLayout& layout, const std::string& directory, std::int64_t iteration = 10,
          const WriteOptions& options = small_pieces(), float shift = 0) {
  run_layout(layout, [&](comm::Communicator& world, std::vector<StateEntry>& entries) {
    for (StateEntry& entry : entries)
      each_element(entry, [&](float& element, float value) { element = value + shift; });
    EXPECT_EQ(write_checkpoint(world, directory, iteration, entries, world.rank() == 0 ? kState : "ignored", options),
              directory + "/" + iteration_folder(iteration));
  });
}

TEST(Writer, WholeTensorsWithTheValuesOfTheirPlaces) {
  const testing::TemporaryFolder folder;
  save({2, 2, 1}, folder / "c");
  const std::set<std::string> top = {"iter_0000010", "latest_checkpointed_iteration.txt"};
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder / "c")) found.insert(entry.path().filename().string());
  EXPECT_EQ(found, top);
  EXPECT_EQ(read_text_file(folder / "c/latest_checkpointed_iteration.txt"), "10");
  EXPECT_EQ(read_text_file(folder / "c/iter_0000010/state.json"), kState);
  std::set<std::string> names;
  int files = 0;
  std::string last_in_file;
  for (const auto& entry : fs::directory_iterator(folder / "c/iter_0000010")) {
    if (entry.path().extension() != ".safetensors") continue;
    ++files;
    const SafetensorsFile file(entry.path().string());
    const bool optimizer = entry.path().filename().string().rfind("optimizer-", 0) == 0;
    std::int64_t data_bytes = 0;
    for (const TensorInfo& info : file.tensors()) {
      data_bytes += info.bytes();
      names.insert(info.name);
      EXPECT_EQ(info.name.rfind("optimizer.", 0) == 0, optimizer) << info.name;
      const auto values = file.read_float(info.name);
      const std::int64_t cols = info.shape.size() == 2 ? info.shape[1] : 1;
      for (std::int64_t i = 0; i < info.numel(); ++i)
        ASSERT_EQ(values[static_cast<std::size_t>(i)], value_at(info.name, i / cols, i % cols))
            << info.name << " " << i;
    }
    EXPECT_TRUE(data_bytes <= 40000 || file.tensors().size() == 1) << entry.path();
    if (file.has("embedding.word_embeddings.weight")) {  // held in 48 rows by two ranks
      EXPECT_EQ(file.info("embedding.word_embeddings.weight").shape, (std::vector<std::int64_t>{kVocabulary, kHidden}));
    }
    if (entry.path().filename() == "model-00001.safetensors") {
      EXPECT_EQ(file.tensors().front().name, "decoder.layers.0.input_layernorm.weight");
      EXPECT_EQ(file.info("decoder.layers.0.self_attention.linear_qkv.bias").shape, (std::vector<std::int64_t>{28}));
    }
  }
  EXPECT_EQ(names.size(), 3U * (5U * kLayers + 1U));
  EXPECT_GT(files, 6);
}

TEST(Writer, BytesDoNotDependOnTheLayoutOrTheRun) {
  const testing::TemporaryFolder folder;
  save({1, 1, 1}, folder / "one");
  const auto one = contents(folder / "one");
  const std::vector<TestLayout> layouts = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {3, 1, 1}, {1, 3, 1},
                                           {4, 1, 1}, {2, 2, 1}, {2, 1, 2}, {6, 1, 1}, {2, 2, 2}};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const std::string directory = folder / std::to_string(i);
    save(layouts[i], directory);
    const auto other = contents(directory);
    ASSERT_EQ(one.size(), other.size());
    for (const auto& [name, text] : one) EXPECT_TRUE(other.at(name) == text) << "layout " << i << ": " << name;
  }
}

TEST(Writer, ReplacesAFolderOfTheSameIterationAndKeepsOthers) {
  const testing::TemporaryFolder folder;
  save({1, 1, 1}, folder / "c", 5);
  save({2, 1, 1}, folder / "c", 10);
  const auto before = contents(folder / "c");
  save({1, 2, 1}, folder / "c", 10, small_pieces(), 1.0F);
  const auto after = contents(folder / "c");
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, text] : before) {
    const bool data = name.rfind("iter_0000010/", 0) == 0 && name.find("state.json") == std::string::npos;
    EXPECT_EQ(text != after.at(name), data) << name;
  }
}

TEST(Writer, RemovesWhatInterruptedSavesLeft) {
  const testing::TemporaryFolder folder;
  save({1, 1, 1}, folder / "c", 5);
  for (const char* name :
       {"iter_0000007.tmp", "iter_0000010.tmp", "iter_0000005.replaced.tmp", "notes.tmp", "iter_x.tmp"}) {
    create_directories(folder / "c/" + name);
    put(folder / "c/" + name + "/model-00001.safetensors", "half");
  }
  // A crash between the two renames of a replacement: the old folder is all there is of iteration 8.
  fs::rename(folder / "c/iter_0000005", folder / "c/iter_0000008.replaced.tmp");
  save({2, 1, 1}, folder / "c", 10);
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder / "c")) found.insert(entry.path().filename().string());
  EXPECT_EQ(found, (std::set<std::string>{"iter_0000005", "iter_0000008", "iter_0000010", "iter_x.tmp",
                                          "latest_checkpointed_iteration.txt", "notes.tmp"}));
}

/// Saves iteration 20 with a failure; every rank must report it, and nothing may have changed.
void expect_failure(const std::string& directory, const std::string& step, int rank, std::int64_t iteration) {
  const auto before = contents(directory);
  std::atomic<int> reports{0};
  WriteOptions options = small_pieces();
  options.before_step = [&](std::string_view at, int on) {
    if (at == step && on == rank) throw IoError(str_cat("DISK of ", rank, " at ", step));
  };
  run_layout({2, 2, 1}, [&](comm::Communicator& world, std::vector<StateEntry>& entries) {
    fill(entries);
    try {
      write_checkpoint(world, directory, iteration, entries, kState, options);
    } catch (const IoError& error) {
      EXPECT_EQ(std::string(error.what()), str_cat("DISK of ", rank, " at ", step, " (rank ", rank, ")"));
      ++reports;
    }
    world.barrier("the world still works");
  });
  EXPECT_EQ(reports, 4) << step;
  EXPECT_EQ(contents(directory) == before, true) << step << " on rank " << rank;
  int folders = 0;
  for (const auto& entry : fs::directory_iterator(directory)) folders += entry.is_directory() ? 1 : 0;
  EXPECT_EQ(folders, 1) << step;
}

TEST(Writer, AFailureOnOneRankIsKnownToAllAndLeavesNothing) {
  const testing::TemporaryFolder folder;
  save({1, 1, 1}, folder / "c", 10, small_pieces(), 3.0F);
  for (const std::int64_t iteration : {20, 10})  // a new folder, and one that would be replaced
    for (int rank = 0; rank < 4; ++rank)
      for (const char* step : {"create", "write", "commit", "rename", "tracker"})
        if (rank == 0 || std::string(step) == "create" || std::string(step) == "write")
          expect_failure(folder / "c", step, rank, iteration);
  save({2, 2, 1}, folder / "c", 20);
  EXPECT_EQ(latest_iteration(folder / "c"), 20);
}

TEST(Writer, AProcessKilledInASaveLosesNothingThatWasSaved) {
  const testing::TemporaryFolder folder;
  save({1, 1, 1}, folder / "c", 10, small_pieces(), 3.0F);
  for (const std::int64_t iteration : {20, 10})
    for (const std::string step : {"create", "write", "commit", "rename", "tracker"}) {
      const pid_t child = fork();
      if (child == 0) {
        WriteOptions options = small_pieces();
        options.before_step = [&](std::string_view at, int rank) {
          if (at == step && rank == 0) kill(getpid(), SIGKILL);
        };
        save({2, 1, 1}, folder / "c", iteration, options);
        _exit(0);
      }
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << step;
      EXPECT_EQ(latest_iteration(folder / "c"), 10) << step;
      const CheckpointReader reader(folder / "c", 10);
      reader.verify_checksums();
    }
  save({2, 1, 1}, folder / "c", 20);
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(folder / "c")) found.insert(entry.path().filename().string());
  EXPECT_EQ(found, (std::set<std::string>{"iter_0000010", "iter_0000020", "latest_checkpointed_iteration.txt"}));
}

TEST(Writer, UnwritablePathsAreNamedOnEveryRank) {
  const testing::TemporaryFolder folder;
  put(folder / "file", "x");
  std::atomic<int> reports{0};
  run_layout({2, 1, 1}, [&](comm::Communicator& world, std::vector<StateEntry>& entries) {
    fill(entries);
    try {
      write_checkpoint(world, folder / "file/c", 1, entries, kState);
    } catch (const IoError& error) {
      EXPECT_NE(std::string(error.what()).find(folder / "file/c"), std::string::npos) << error.what();
      ++reports;
    }
  });
  EXPECT_EQ(reports, 2);
  EXPECT_THROW(check_free_space(folder / "file/c", 0), IoError);
}

TEST(Writer, ADiskThatIsTooSmallIsFoundBeforeDataAreMoved) {
  const testing::TemporaryFolder folder;
  save({1, 1, 1}, folder / "c", 10);
  const auto before = contents(folder / "c");
  // A limit on the size of files stands in for a full disk: both fail in the same calls.
  struct rlimit old {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = old;
  small.rlim_cur = 4096;
  std::atomic<int> reports{0}, writes{0};
  WriteOptions options = small_pieces();
  options.before_step = [&](std::string_view step, int) { writes += step == "write" ? 1 : 0; };
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  run_layout({2, 1, 1}, [&](comm::Communicator& world, std::vector<StateEntry>& entries) {
    fill(entries);
    try {
      write_checkpoint(world, folder / "c", 20, entries, kState, options);
    } catch (const IoError& error) {
      EXPECT_NE(std::string(error.what()).find(".safetensors: cannot"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("File too large"), std::string::npos) << error.what();
      ++reports;
    }
  });
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, old_handler);
  EXPECT_EQ(reports, 2);
  EXPECT_EQ(writes, 0);
  EXPECT_TRUE(contents(folder / "c") == before);
}

TEST(Writer, RefusesStateThatDoesNotTileItsTensors) {
  const testing::TemporaryFolder folder;
  const auto expect_refusal = [&](const std::function<void(int, std::vector<StateEntry>&)>& spoil,
                                  const std::string& part) {
    std::atomic<int> reports{0};
    run_layout({2, 1, 1}, [&](comm::Communicator& world, std::vector<StateEntry>& entries) {
      spoil(world.rank(), entries);
      try {
        write_checkpoint(world, folder / "c", 1, entries, kState);
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
        ++reports;
      }
    });
    EXPECT_EQ(reports, 2) << part;
    EXPECT_FALSE(fs::exists(folder / "c"));
  };
  expect_refusal([](int rank, auto& entries) { entries[0].writer = rank == 0; },
                 "embedding.word_embeddings.weight: elements owned by some rank, and all elements");
  expect_refusal([](int, auto& entries) { entries[3].sharding.pieces[0].owned = true; }, "both own a part");
  expect_refusal([](int rank, auto& entries) { entries[0].sharding.rows += rank; }, "another shape or dtype");
}

TEST(Writer, CountsTheBytesItNeeds) {
  const testing::TemporaryFolder folder;
  // Rows of linear_qkv: 14 heads of 2 in six layers, 36 heads of 2 in five. Weights and two moments of 4 bytes.
  const std::int64_t qkv_rows = 6 * 28 + 5 * 72;
  const std::int64_t expected = 12 * (qkv_rows * 25 + kLayers * (24 + 2 * 24 * 24) + kVocabulary * 24);
  std::atomic<std::int64_t> total{0};
  run_layout({4, 1, 2}, [&](comm::Communicator& world, std::vector<StateEntry>& entries) {
    total += required_bytes(entries);
    check_free_space(world, folder / "not/yet/there", entries);
  });
  EXPECT_EQ(total, expected);
  try {
    check_free_space(folder.path(), std::int64_t{1} << 62);
    FAIL();
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("a checkpoint needs"), std::string::npos);
  }
}

}  // namespace
}  // namespace megatron::checkpoint
