#include "data/merge.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/check.h"
#include "data/indexed_dataset.h"
#include "data/preprocess.h"
#include "data/tokenizer_stamp.h"
#include "golden.h"
#include "temporary_folder.h"

namespace megatron::data {
namespace {

using testing::Ints;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

/// Documents of sequences.
using Documents = std::vector<std::vector<Ints>>;

void write_dataset(const std::string& prefix, const Documents& documents, bool modes = false,
                   TokenType type = TokenType::uint16) {
  IndexedDatasetWriter writer(prefix, type, modes);
  for (const auto& document : documents) {
    for (const Ints& sequence : document)
      writer.add_sequence(sequence, static_cast<std::int8_t>(modes ? sequence.size() : 0));
    writer.end_document();
  }
  writer.finish();
}

Documents documents_of(const std::string& prefix) {
  const IndexedDataset dataset(prefix);
  Documents documents(static_cast<std::size_t>(dataset.num_documents()));
  for (std::int64_t d = 0; d < dataset.num_documents(); ++d)
    for (std::int64_t i = dataset.document_start(d); i < dataset.document_start(d + 1); ++i)
      documents[static_cast<std::size_t>(d)].push_back(dataset.get(i));
  return documents;
}

template <typename Work>
std::string error_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

const Documents kFirst = {{{1, 2}, {3}}, {}, {{4}}};
const Documents kSecond = {{{5, 6, 7}}};

TEST(MergeDatasets, DocumentsFollowEachOtherInTheOrderOfNames) {
  const TemporaryFolder folder;
  write_dataset(folder / "b", kSecond);
  write_dataset(folder / "a", kFirst);
  write_file(folder / "notes.txt", "x");
  const auto prefixes = datasets_in(folder / "");
  ASSERT_EQ(prefixes, (std::vector<std::string>{folder / "a", folder / "b"}));
  const WrittenDataset written = merge_datasets(prefixes, folder / "out", false);
  Documents expected = kFirst;
  expected.push_back(kSecond[0]);
  EXPECT_EQ(documents_of(folder / "out"), expected);
  EXPECT_EQ(written.documents, 4);
  EXPECT_EQ(written.sequences, 4);
  EXPECT_EQ(written.tokens, 7);
  const IndexedDataset dataset(folder / "out");
  Ints starts;
  for (std::int64_t d = 0; d <= dataset.num_documents(); ++d) starts.push_back(dataset.document_start(d));
  EXPECT_EQ(starts, (Ints{0, 2, 2, 3, 4}));
}

TEST(MergeDatasets, EqualsTheReference) {
  const std::string dir = (testing::dataset_dir() / "data").string() + "/";
  MEGATRON_REQUIRE_REFERENCE(testing::dataset_dir() / "data");
  const TemporaryFolder folder;
  for (const bool modes : {false, true}) {
    const std::vector<std::string> inputs = modes ? std::vector<std::string>{dir + "u16_modes", dir + "u16_modes"}
                                                  : std::vector<std::string>{dir + "u16", dir + "u16_small"};
    merge_datasets(inputs, folder / "out", modes);
    const std::string expected = dir + (modes ? "u16_modes_merged" : "u16_merged");
    EXPECT_EQ(read_file(folder / "out.idx"), read_file(expected + ".idx"));
    EXPECT_EQ(read_file(folder / "out.bin"), read_file(expected + ".bin"));
  }
}

TEST(MergeDatasets, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  write_dataset(folder / "a", kFirst);
  write_dataset(folder / "modes", kFirst, true);
  write_dataset(folder / "wide", kFirst, false, TokenType::int32);
  const auto merge = [&](const std::vector<std::string>& inputs, bool modes = false, const char* to = "out") {
    return error_of([&] { merge_datasets(inputs, folder / to, modes); });
  };
  EXPECT_NE(merge({folder / "a", folder / "wide"}).find("wide: holds int32, expected uint16"), std::string::npos);
  EXPECT_NE(merge({folder / "a", folder / "modes"}).find("has modes; give --multimodal"), std::string::npos);
  EXPECT_NE(merge({folder / "a"}, true).find("has no modes, but --multimodal"), std::string::npos);
  EXPECT_NE(merge({folder / "a"}, false, "a").find("is one of the inputs"), std::string::npos);
  write_stamp(folder / "a", tokenizer_stamp(*tokenizer::create_tokenizer("ByteLevel"), true));
  write_dataset(folder / "b", kSecond);
  const WrittenDataset mixed = merge_datasets({folder / "a", folder / "b"}, folder / "mixed", false);
  EXPECT_NE(mixed.note.find("b has no "), std::string::npos) << mixed.note;
  EXPECT_FALSE(read_stamp(folder / "mixed").has_value());
  EXPECT_EQ(merge({folder / "modes", folder / "modes"}, true), "");
  EXPECT_EQ(IndexedDataset(folder / "out").mode(3), 2);
  std::filesystem::remove(folder / "b.bin");
  EXPECT_NE(error_of([&] { datasets_in(folder / ""); }).find("b.idx: has no .bin"), std::string::npos);
  EXPECT_NE(error_of([&] { datasets_in(folder / "nothing"); }).find("cannot be read"), std::string::npos);
}

TEST(MergeDatasets, TheTokenizerIsKnownByItsHash) {
  const TemporaryFolder folder;
  write_dataset(folder / "in-a", kFirst);
  write_dataset(folder / "in-b", kSecond);
  const std::vector<std::string> inputs = {folder / "in-a", folder / "in-b"};
  const auto stamp = [](const char* hash, const char* path, const char* append) {
    return str_cat(R"({"hash": ")", hash, R"(", "type": "T", "vocab_size": 9, "eod": 1, "append_eod": )", append,
                   R"(, "identity": {"files": ")", path, R"("}})");
  };
  write_stamp(inputs[0], stamp("abc", "/one/place", "true"));
  const auto merged = [&] { return error_of([&] { merge_datasets(inputs, folder / "out", false); }); };
  write_stamp(inputs[1], stamp("abd", "/one/place", "true"));
  EXPECT_NE(merged().find("is not that of"), std::string::npos);
  write_stamp(inputs[1], stamp("abc", "/one/place", "false"));
  EXPECT_NE(merged().find("have no end-of-document id"), std::string::npos);
  write_stamp(inputs[1], stamp("abc", "/another", "true"));
  EXPECT_EQ(merged(), "");
  EXPECT_EQ(read_stamp(folder / "out"), read_stamp(inputs[0]));
  // Without stamps none is left of what stood there before.
  for (const std::string& input : inputs) std::filesystem::remove(stamp_path(input));
  EXPECT_EQ(merged(), "");
  EXPECT_FALSE(read_stamp(folder / "out").has_value());
}

TEST(SplitDataset, ByShares) {
  const TemporaryFolder folder;
  Documents documents;
  for (std::int64_t i = 0; i < 10; ++i) documents.push_back({{i}, {i, i}});
  write_dataset(folder / "a", documents);
  write_stamp(folder / "a", "{}");
  const auto written = split_dataset(folder / "a", folder / "p", "80,20,0");
  ASSERT_EQ(written.size(), 2U);
  EXPECT_EQ(documents_of(folder / "p_train"), Documents(documents.begin(), documents.begin() + 8));
  EXPECT_EQ(documents_of(folder / "p_valid"), Documents(documents.begin() + 8, documents.end()));
  EXPECT_EQ(read_stamp(folder / "p_valid"), "{}");
  EXPECT_THROW(split_dataset(folder / "a", folder / "p", "-1,1"), ConfigError);
}

TEST(SplitDataset, NothingIsLeftOfAnEarlierCut) {
  const TemporaryFolder folder;
  write_dataset(folder / "a", {{{1}}, {{2}}, {{3}}, {{4}}});
  EXPECT_EQ(split_dataset(folder / "a", folder / "o", "1,1,0").size(), 2U);
  EXPECT_NE(error_of([&] { split_dataset(folder / "a", folder / "o", "1,0,0"); }).find("o_valid.idx: is left"),
            std::string::npos);
  EXPECT_EQ(IndexedDataset(folder / "o_train").num_documents(), 2);
}

TEST(SplitDataset, PartsJoinToTheWhole) {
  const TemporaryFolder folder;
  Documents documents;
  for (std::int64_t i = 0; i < 11; ++i)
    documents.push_back(i % 4 == 2 ? std::vector<Ints>{} : std::vector<Ints>{{i, 5}});
  write_dataset(folder / "a", documents, true);
  std::vector<std::string> parts;
  for (const WrittenDataset& part : split_into_parts(folder / "a", folder / "p", 3)) parts.push_back(part.prefix);
  EXPECT_EQ(parts, (std::vector<std::string>{folder / "p_00000", folder / "p_00001", folder / "p_00002"}));
  merge_datasets(parts, folder / "again", true);
  EXPECT_EQ(read_file(folder / "again.bin"), read_file(folder / "a.bin"));
  EXPECT_EQ(read_file(folder / "again.idx"), read_file(folder / "a.idx"));
  EXPECT_THROW(split_into_parts(folder / "a", folder / "p", 12), ConfigError);
}

}  // namespace
}  // namespace megatron::data
