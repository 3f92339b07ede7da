#include "data/index_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "data/index_md5.h"
#include "data/indexed_dataset.h"
#include "data/md5.h"
#include "data/npy.h"
#include "golden.h"
#include "temporary_folder.h"

namespace megatron::data {
namespace {

using testing::Json;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

TEST(Md5, KnownSums) {
  EXPECT_EQ(data::md5(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(data::md5("The quick brown fox jumps over the lazy dog"), "9e107d9d372bb6826bd81d3542a419d6");
  for (std::size_t size = 0; size < 300; ++size) {
    const std::string text(size, 'x');
    Md5 pieces;
    for (std::size_t at = 0; at < size; at += 7)
      pieces.add(std::as_bytes(std::span(text).subspan(at, std::min<std::size_t>(7, size - at))));
    EXPECT_EQ(pieces.finish(), testing::md5(std::as_bytes(std::span(text)))) << size;
  }
}

IndexCache null_cache(const std::string& folder, const std::optional<std::string>& split,
                      std::optional<std::int64_t> pad = {}) {
  const auto tokenizer = tokenizer::create_tokenizer("NullTokenizer", {60000, 7, pad});
  return {folder, split, tokenizer_description(*tokenizer)};
}

/// Two tokenizers made the records: without a padding id, and with 9.
std::optional<std::int64_t> pad_of(const Json& record) {
  const bool has_pad = record["unique_description"].get<std::string>().find("pad_id") != std::string::npos;
  return has_pad ? std::optional<std::int64_t>(9) : std::nullopt;
}

struct Case {
  IndexedDataset dataset;
  IndexCache cache;
  GptIndexConfig config;
  IndexRange range;
  std::string description;

  Case(const Json& record, const std::string& folder)
      : dataset((testing::dataset_dir() / record["prefix"].get<std::string>()).string()),
        cache(null_cache(folder, record["split"].get<std::string>(), pad_of(record))) {
    config.seq_length = record["sequence_length"].get<std::int64_t>();
    config.seed = record["seed"].get<std::uint64_t>();
    if (!record["num_samples"].is_null()) config.num_samples = record["num_samples"].get<std::int64_t>();
    range = split_range(*parse_split(*cache.split)[0], dataset.num_sequences());
    description = gpt_description(cache, record["prefix"].get<std::string>(), SplitName::train, config);
  }
  GptIndex index() {
    std::string note;
    GptIndex result = cached_gpt_index(
        cache, description, SplitName::train, config, range, [this](std::int64_t i) { return dataset.length(i); },
        note);
    EXPECT_EQ(note, "");
    return result;
  }
  GptIndex built() const {
    return build_gpt_index(config, range, [this](std::int64_t i) { return dataset.length(i); });
  }
};

void expect_equal(const GptIndex& a, const GptIndex& b) {
  const IndexMd5 x = index_md5(a), y = index_md5(b);
  EXPECT_EQ(x.documents, y.documents);
  EXPECT_EQ(x.samples, y.samples);
  EXPECT_EQ(x.order, y.order);
}

TEST(IndexCache, FilesOfTheReference) {
  const auto path = testing::dataset_dir() / "cache.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  int files = 0;
  for (const Json& record : testing::load_json(path)) {
    const TemporaryFolder folder;
    Case item(record, folder / "made/here");
    EXPECT_EQ(item.description, record["unique_description"].get<std::string>());
    EXPECT_EQ(data::md5(item.description), record["hash"].get<std::string>());
    EXPECT_FALSE(item.index().order.mapped());
    for (const auto& [name, file] : record["files"].items()) {
      const std::string text = read_file(folder / "made/here/" + name);
      EXPECT_EQ(text.size(), file["bytes"].get<std::size_t>()) << name;
      EXPECT_EQ(data::md5(text), file["md5"].get<std::string>()) << name;
      ++files;
    }
    const GptIndex again = item.index();
    EXPECT_TRUE(again.order.mapped() && again.documents.mapped() && again.sample_offset.mapped());
    expect_equal(again, item.built());
  }
  EXPECT_EQ(files, 12);
}

TEST(IndexCache, ReadsWhatTheReferenceWrote) {
  const auto path = testing::dataset_dir() / "cache_a";
  MEGATRON_REQUIRE_REFERENCE(path);
  const Json record = testing::load_json(testing::dataset_dir() / "cache.json")[0];
  const TemporaryFolder folder;
  std::filesystem::copy(path, folder / "c");
  Case item(record, folder / "c");
  const GptIndex index = item.index();
  EXPECT_TRUE(index.order.mapped());
  expect_equal(index, item.built());
}

// A file of a run without overlapping samples has the same name; damaged files have too.
TEST(IndexCache, WhatDoesNotFitIsBuiltAnew) {
  const auto path = testing::dataset_dir() / "cache.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  const Json record = testing::load_json(path)[0];
  const TemporaryFolder folder;
  Case other(record, folder / "c");
  other.config.extra_token = false;
  other.index();
  Case item(record, folder / "c");
  const GptIndex index = item.index();
  EXPECT_FALSE(index.order.mapped());
  expect_equal(index, item.built());
  EXPECT_TRUE(item.index().order.mapped());
  const std::string base = folder / "c/" + record["hash"].get<std::string>() + "-GPTDataset-train-";
  for (const char* name : {"document_index.npy", "sample_index.npy", "shuffle_index.npy", "description.txt"}) {
    const std::string whole = read_file(base + name);
    for (const std::size_t size : {std::size_t{0}, std::size_t{9}, whole.size() / 2, whole.size() - 1}) {
      write_file(base + name, whole.substr(0, size));
      const GptIndex again = item.index();
      EXPECT_FALSE(again.order.mapped()) << name << " " << size;
      expect_equal(again, item.built());
      EXPECT_EQ(read_file(base + name), whole);
    }
  }
}

/// Entries that the spot checks pass over cannot lead a reader beyond a sample.
TEST(IndexCache, NoDamagedEntryGetsThrough) {
  const TemporaryFolder folder;
  const IndexCache cache = null_cache(folder / "c", "1,0,0");
  GptIndexConfig config;
  config.seq_length = 8;
  config.num_samples = 3000;
  const IndexRange range = {0, 5000};
  const auto length = [](std::int64_t i) { return 5 + i % 7; };
  std::string note;
  const auto built = [&] { return cached_gpt_index(cache, "made", SplitName::train, config, range, length, note); };
  const GptIndex right = built();
  ASSERT_TRUE(built().order.mapped());
  const std::string base = folder / "c/" + data::md5("made") + "-GPTDataset-train-", path = base + "sample_index.npy";
  const std::string whole = read_file(path);
  const std::size_t header = whole.size() - 2 * 4 * 3001;
  for (std::size_t entry = 1; entry < 3000; entry += 37)
    for (const std::int32_t offset : {-1, 1000, 0}) {
      std::string damaged = whole;
      std::int32_t document = 0;
      std::memcpy(&document, damaged.data() + header + 8 * entry, 4);
      document -= offset == 0 ? 4 : 0;  // an earlier start: that sample is too long
      std::memcpy(damaged.data() + header + 8 * entry, &document, 4);
      std::memcpy(damaged.data() + header + 8 * entry + 4, &offset, 4);
      write_file(path, damaged);
      std::filesystem::remove(base + "checksums.txt");  // as in a cache of Megatron-LM
      const GptIndex again = built();
      EXPECT_FALSE(again.order.mapped()) << entry << " " << offset;
      expect_equal(again, right);
    }
  // One bit anywhere, and two entries in each other's place.
  for (const char* name : {"document_index.npy", "sample_index.npy", "shuffle_index.npy"}) {
    const std::string undamaged = read_file(base + name);
    for (const std::size_t place : {undamaged.size() / 3, undamaged.size() / 2, undamaged.size() - 1}) {
      std::string damaged = undamaged;
      damaged[place] = static_cast<char>(damaged[place] ^ 1);
      write_file(base + name, damaged);
      EXPECT_FALSE(built().order.mapped()) << name << " " << place;
      EXPECT_EQ(read_file(base + name), undamaged);
      EXPECT_TRUE(built().order.mapped());
    }
    std::string swapped = undamaged;
    std::swap_ranges(swapped.end() - 8, swapped.end() - 4, swapped.end() - 4);
    write_file(base + name, swapped);
    EXPECT_FALSE(built().order.mapped()) << name;
  }
  // Without checksums an entry that stands twice is still no order.
  const std::string order = read_file(base + "shuffle_index.npy");
  write_file(base + "shuffle_index.npy", order.substr(0, order.size() - 4) + order.substr(order.size() - 8, 4));
  std::filesystem::remove(base + "checksums.txt");
  EXPECT_FALSE(built().order.mapped());
  // A folder in a file's place is no cache.
  std::filesystem::remove(base + "description.txt");
  std::filesystem::create_directory(base + "description.txt");
  expect_equal(built(), right);
  EXPECT_NE(note, "");
}

TEST(IndexCache, AFolderThatCannotBeWrittenIsToldAndHarmless) {
  const auto path = testing::dataset_dir() / "cache.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  const TemporaryFolder folder;
  write_file(folder / "file", "");
  Case item(testing::load_json(path)[0], folder / "file/sub");
  std::string note;
  const GptIndex index = cached_gpt_index(
      item.cache, item.description, SplitName::train, item.config, item.range,
      [&](std::int64_t i) { return item.dataset.length(i); }, note);
  EXPECT_NE(note.find("--data-cache-path " + (folder / "file/sub") + ": indices are not kept"), std::string::npos)
      << note;
  expect_equal(index, item.built());
}

TEST(IndexCache, NamesOfBlendMembersOfTheReference) {
  const auto path = testing::dataset_dir() / "blended.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  int compared = 0;
  for (const Json& record : testing::load_json(path)) {
    if (!record.contains("ok") || !record["options"].contains("blend") || record["options"]["blend"].is_null())
      continue;
    const IndexCache cache = null_cache("x", record["options"]["split"].get<std::string>());
    for (std::size_t s = 0; s < kSplitNames.size(); ++s) {
      const Json& split = record["ok"][std::string(kSplitNames[s])];
      if (split.is_null() || !split.contains("members")) continue;
      for (std::size_t i = 0; i < split["members"].size(); ++i) {
        const Json& member = split["members"][i];
        if (!member.contains("hash")) continue;
        GptIndexConfig config;
        config.seq_length = record["sequence_length"].get<std::int64_t>();
        config.seed = record["seed"].get<std::uint64_t>();
        if (!member["num_samples"].is_null()) config.num_samples = member["num_samples"].get<std::int64_t>();
        const std::string prefix = record["options"]["blend"][0][i].get<std::string>();
        EXPECT_EQ(data::md5(gpt_description(cache, prefix, static_cast<SplitName>(s), config)),
                  member["hash"].get<std::string>())
            << record["name"];
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 10);
}

}  // namespace
}  // namespace megatron::data
