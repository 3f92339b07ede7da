// The fuzz entries on their seeds and on mutations of them: the same inputs in every run, so that what libFuzzer looks
// for at random is looked for a little in every build, sanitizers included.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "fuzz/entries.h"

namespace megatron::fuzz {
namespace {

using Input = std::string;

struct Entry {
  std::string name;  // folder of its seeds
  Outcome (*run)(Bytes bytes);
  int mutations;  // of each seed
};
const Entry kEntries[] = {{"index_file", index_file, 2000},
                          {"tokenizer_json", tokenizer_json, 2000},
                          {"tiktoken_ranks", tiktoken_ranks, 2000},
                          {"gpt2_merges", gpt2_merges, 2000},
                          {"json_lines", json_lines, 2000}};

std::map<std::string, Input> seeds_of(const std::string& name) {
  std::map<std::string, Input> seeds;
  for (const auto& item : std::filesystem::directory_iterator(MEGATRON_SOURCE_DIR "/tests/fuzz/seeds/" + name)) {
    std::ifstream in(item.path(), std::ios::binary);
    seeds[item.path().filename()].assign(std::istreambuf_iterator<char>(in), {});
  }
  return seeds;
}

Outcome run(const Entry& entry, const Input& input) {
  return entry.run({reinterpret_cast<const std::uint8_t*>(input.data()), input.size()});
}

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : state_(seed) {}

  /// `input` changed in one to four places; `other` gives parts to put in.
  Input mutate(Input input, const Input& other) {
    for (std::size_t left = 1 + next(4); left > 0; --left) change(input, other);
    return input;
  }

 private:
  std::size_t next(std::size_t bound) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>(state_ >> 33) % bound;
  }

  void change(Input& input, const Input& other) {
    static constexpr std::string_view kWords[] = {"null",
                                                  "-1",
                                                  "18446744073709551616",
                                                  "1e400",
                                                  "\"\"",
                                                  "{}",
                                                  "[]",
                                                  "\xef\xbb\xbf",
                                                  "\xff\xff\xff\xff",
                                                  "\\u",
                                                  "\\u0000",
                                                  "\n",
                                                  "true",
                                                  "0",
                                                  "\\1",
                                                  "(?",
                                                  "[[[[[[[[",
                                                  " "};
    const std::size_t at = next(input.size() + 1), most = input.size() - at;
    const std::size_t length = std::min(most, next(2) == 0 ? next(8) : next(200));
    switch (next(8)) {
      case 0:
        if (most > 0) input[at] = static_cast<char>(input[at] ^ (1 << next(8)));
        break;
      case 1:
        if (most > 0) input[at] = static_cast<char>(next(256));
        break;
      case 2:
        input.erase(at, length);
        break;
      case 3:
        input.insert(at, input.substr(next(input.size() + 1), length));
        break;
      case 4:
        input.replace(at, length, kWords[next(std::size(kWords))]);
        break;
      case 5:
        input.replace(at, length, other.substr(next(other.size() + 1), next(64)));
        break;
      case 6:
        for (std::size_t i = at; i < at + std::min<std::size_t>(length, 8); ++i)
          input[i] = next(2) == 0 ? '\0' : '\xff';
        break;
      default:
        if (next(20) == 0) input.resize(at);
        break;
    }
  }

  std::uint64_t state_;
};

std::int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

class Fuzz : public ::testing::TestWithParam<std::size_t> {
 protected:
  // Every input becomes a file; it need not reach a disk.
  static void SetUpTestSuite() {
    if (std::filesystem::is_directory("/dev/shm")) ::setenv("TMPDIR", "/dev/shm", /*overwrite=*/0);
  }
  const Entry& entry() const { return kEntries[GetParam()]; }
};

TEST_P(Fuzz, SeedsKeepTheirPromises) {
  const auto seeds = seeds_of(entry().name);
  int accepted = 0;
  for (const auto& [name, seed] : seeds) {
    SCOPED_TRACE(name);
    EXPECT_NO_THROW(accepted += run(entry(), seed) == Outcome::accepted ? 1 : 0);
  }
  EXPECT_GE(accepted, 2) << "seeds that are refused reach little code";
  EXPECT_NO_THROW(run(entry(), ""));
}

TEST_P(Fuzz, MutatedSeedsKeepTheirPromises) {
  const auto seeds = seeds_of(entry().name);
  const std::int64_t before = peak_bytes();
  std::uint64_t number = 0;
  int refused = 0, accepted = 0;
  for (const auto& [name, seed] : seeds) {
    if (seed.size() > (1 << 16)) continue;
    for (int m = 0; m < entry().mutations; ++m) {
      Mutator mutator(++number);
      const auto other = std::next(seeds.begin(), static_cast<std::ptrdiff_t>(number % seeds.size()));
      const Input input = mutator.mutate(seed, other->second);
      try {
        ++(run(entry(), input) == Outcome::accepted ? accepted : refused);
      } catch (const std::exception& error) {
        FAIL() << name << ", mutation " << number << ": " << error.what();
      }
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
  EXPECT_LT(peak_bytes() - before, std::int64_t{1} << 30) << "a small file needs little memory";
}

INSTANTIATE_TEST_SUITE_P(Entries, Fuzz, ::testing::Range<std::size_t>(0, std::size(kEntries)),
                         [](const auto& parameter) { return kEntries[parameter.param].name; });

}  // namespace
}  // namespace megatron::fuzz
