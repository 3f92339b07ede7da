#include "data/indexed_dataset.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "base/check.h"
#include "data/gpt_dataset.h"
#include "golden.h"
#include "temporary_folder.h"

namespace megatron::data {
namespace {

using testing::Ints;
using testing::Json;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes)
    for (const int shift : {4, 0}) text += "0123456789abcdef"[(static_cast<unsigned char>(c) >> shift) & 15];
  return text;
}

/// Three sequences of 3, 2 and 4 tokens in two documents.
void write_small(const std::string& prefix, TokenType type, bool modes) {
  IndexedDatasetWriter writer(prefix, type, modes);
  writer.add_sequence(Ints{1, 2, 3}, 0);
  writer.add_sequence(Ints{4, 5}, 1);
  writer.end_document();
  writer.add_sequence(Ints{6, 7, 8, 9}, 0);
  writer.end_document();
  writer.finish();
}

template <typename Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string open_error(const std::string& prefix) {
  return error_of([&] { IndexedDataset dataset(prefix); });
}

TEST(IndexedDatasetWriter, BytesOfTheReference) {
  const TemporaryFolder folder;
  write_small(folder / "a", TokenType::uint16, false);
  EXPECT_EQ(
      hex(read_file(folder / "a.idx")),
      "4d4d4944494458000001000000000000000803000000000000000300000000000000030000000200000004000000000000000000000006"
      "000000000000000a00000000000000000000000000000002000000000000000300000000000000");
  EXPECT_EQ(hex(read_file(folder / "a.bin")), "010002000300040005000600070008000900");
  write_small(folder / "b", TokenType::int32, true);
  EXPECT_EQ(
      hex(read_file(folder / "b.idx")),
      "4d4d494449445800000100000000000000040300000000000000030000000000000003000000020000000400000000000000000000000c"
      "000000000000001400000000000000000000000000000002000000000000000300000000000000000100");
  EXPECT_EQ(folder.num_files(), 4U) << "temporary files stay behind";
}

TEST(IndexedDatasetWriter, NothingUnderTheFinalNamesUnlessFinished) {
  const TemporaryFolder folder;
  {
    IndexedDatasetWriter writer(folder / "a", TokenType::uint16);
    writer.add_sequence(Ints{1, 2, 3});
    EXPECT_FALSE(std::filesystem::exists(folder / "a.bin"));
    EXPECT_THROW(writer.add_sequence(Ints{65536}), Error);
    EXPECT_THROW(writer.add_sequence(Ints{-1}), Error);
  }
  EXPECT_EQ(folder.num_files(), 0U);
  EXPECT_THROW(IndexedDatasetWriter(folder / "no/such/folder/a", TokenType::uint16), IoError);
}

TEST(IndexedDataset, ReadsEveryTokenType) {
  for (const TokenType type :
       {TokenType::uint8, TokenType::int8, TokenType::int16, TokenType::int32, TokenType::int64, TokenType::uint16}) {
    const TemporaryFolder folder;
    write_small(folder / "a", type, false);
    const IndexedDataset dataset(folder / "a");
    EXPECT_EQ(dataset.type(), type);
    EXPECT_EQ(dataset.num_sequences(), 3);
    EXPECT_EQ(dataset.num_documents(), 2);
    EXPECT_EQ(dataset.num_tokens(), 9);
    EXPECT_EQ(dataset.get(2), (Ints{6, 7, 8, 9}));
    EXPECT_EQ(dataset.get(2, 1, 2), (Ints{7, 8}));
    EXPECT_EQ(dataset.get(2, 4), Ints{});
    EXPECT_THROW(dataset.get(2, 5), Error);
    EXPECT_THROW(dataset.get(2, 0, 5), Error);
    EXPECT_THROW(dataset.get(3), Error);
  }
}

// The bytes are those that Python's struct module gives for the format.
TEST(IndexedDataset, FloatsAreValuesAndNoIds) {
  const TemporaryFolder folder;
  const std::vector<double> values = {0.5, -1.25, 1e30};
  for (const auto& [type, bytes] :
       {std::pair{TokenType::float32, "0000003f0000a0bfcaf24971"},
        std::pair{TokenType::float64, "000000000000e03f000000000000f4bfea8ca039593e2946"}}) {
    {
      IndexedDatasetWriter writer(folder / "a", type);
      writer.add_values(values);
      writer.end_document();
      writer.add_values({});
      writer.end_document();
      EXPECT_THROW(writer.add_sequence(Ints{1}), Error);
      writer.finish();
    }
    EXPECT_EQ(hex(read_file(folder / "a.bin")).substr(0, 200), bytes);
    EXPECT_EQ(read_file(folder / "a.idx")[17], static_cast<char>(type));
    EXPECT_EQ(stored_token_type(folder / "a"), type);
    const IndexedDataset dataset(folder / "a");
    EXPECT_EQ(dataset.num_tokens(), 3);
    EXPECT_EQ(dataset.length(1), 0);
    const std::vector<double> read = dataset.values(0);
    ASSERT_EQ(read.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(read[i], type == TokenType::float64 ? values[i] : static_cast<double>(static_cast<float>(values[i])));
    EXPECT_EQ(dataset.values(0, 1, 1), std::vector<double>{-1.25});
    EXPECT_THROW(dataset.values(0, 2, 2), Error);
    EXPECT_NE(error_of([&] { dataset.get(0); }).find("values, which are not token ids"), std::string::npos);
    IndexedDatasetWriter joined(folder / "b", type);
    joined.add_dataset(dataset);
    joined.add_dataset(dataset);
    joined.finish();
    EXPECT_EQ(hex(read_file(folder / "b.bin")), std::string(bytes) + bytes);
  }
  IndexedDatasetWriter ids(folder / "c", TokenType::int32);
  EXPECT_THROW(ids.add_values(values), Error);
  EXPECT_THROW(ids.add_dataset(IndexedDataset(folder / "a")), ConfigError);
}

TEST(IndexedDataset, MergesDocuments) {
  const TemporaryFolder folder;
  for (const auto& [name, lengths] : std::vector<std::pair<std::string, Ints>>{{"a", {2, 1}}, {"b", {3}}}) {
    IndexedDatasetWriter writer(folder / name, TokenType::uint16);
    for (const std::int64_t length : lengths) {
      writer.add_sequence(Ints(static_cast<std::size_t>(length), length));
      writer.end_document();
    }
    writer.finish();
  }
  IndexedDatasetWriter writer(folder / "c", TokenType::uint16);
  writer.add_dataset(IndexedDataset(folder / "a"));
  writer.add_dataset(IndexedDataset(folder / "b"));
  writer.finish();
  const IndexedDataset merged(folder / "c");
  ASSERT_EQ(merged.num_documents(), 3);
  Ints starts, tokens;
  for (std::int64_t d = 0; d <= 3; ++d) starts.push_back(merged.document_start(d));
  for (std::int64_t i = 0; i < 3; ++i)
    for (const std::int64_t token : merged.get(i)) tokens.push_back(token);
  EXPECT_EQ(starts, (Ints{0, 1, 2, 3}));
  EXPECT_EQ(tokens, (Ints{2, 2, 1, 3, 3, 3}));
  write_small(folder / "d", TokenType::int32, false);
  IndexedDatasetWriter other(folder / "e", TokenType::uint16);
  EXPECT_NE(error_of([&] { other.add_dataset(IndexedDataset(folder / "d")); }).find("expected uint16"),
            std::string::npos);
}

TEST(IndexedDataset, RefusesDamage) {
  const TemporaryFolder folder;
  write_small(folder / "a", TokenType::uint16, false);
  const std::string idx = read_file(folder / "a.idx"), bin = read_file(folder / "a.bin");
  const auto damaged = [&](const std::string& new_idx, const std::string& new_bin) {
    write_file(folder / "x.idx", new_idx);
    write_file(folder / "x.bin", new_bin);
    return open_error(folder / "x");
  };
  const auto changed = [&](std::size_t offset, char value) {
    std::string bytes = idx;
    bytes[offset] = value;
    return damaged(bytes, bin);
  };
  EXPECT_EQ(damaged(idx, bin), "");
  // Every truncation is noticed, with the expected and the found size.
  for (std::size_t size = 0; size < idx.size(); ++size) EXPECT_NE(damaged(idx.substr(0, size), bin), "") << size;
  for (std::size_t size = 0; size < bin.size(); ++size) EXPECT_NE(damaged(idx, bin.substr(0, size)), "") << size;
  const std::string truncated = damaged(idx.substr(0, 90), bin);
  for (const char* part : {"x.idx", "offset 90", "expected 94 bytes", "found 90"})
    EXPECT_NE(truncated.find(part), std::string::npos) << truncated;
  const std::string short_bin = damaged(idx, bin.substr(0, 17));
  for (const char* part : {"x.bin", "offset 17", "expected 18 bytes", "found 17"})
    EXPECT_NE(short_bin.find(part), std::string::npos) << short_bin;
  EXPECT_NE(damaged(idx, bin + "zz").find("too long"), std::string::npos);
  EXPECT_NE(damaged(idx + "zz", bin).find("too long"), std::string::npos);
  EXPECT_NE(changed(0, 'X').find("offset 0: is not an index file"), std::string::npos);
  EXPECT_NE(changed(9, 2).find("offset 9: expected version 1, found 2"), std::string::npos);
  EXPECT_NE(changed(17, 9).find("offset 17"), std::string::npos);
  EXPECT_NE(changed(17, 7).find("offset 54: sequence 1: expected byte offset 12"), std::string::npos) << changed(17, 7);
  EXPECT_NE(changed(25, 0x7f).find("impossible counts"), std::string::npos);
  EXPECT_NE(changed(37, static_cast<char>(0x80)).find("offset 34: sequence 0 has length"), std::string::npos);
  EXPECT_NE(changed(54, 7).find("offset 54: sequence 1: expected byte offset 6, found 7"), std::string::npos);
  EXPECT_NE(changed(78, 9).find("offset 78: document 1"), std::string::npos);
  EXPECT_NE(changed(86, 2).find("offset 86: expected last document boundary 3, found 2"), std::string::npos);
  EXPECT_NE(open_error(folder / "missing").find("missing.idx"), std::string::npos);
  EXPECT_NE(open_error(folder / "a.bin").find("without .bin"), std::string::npos);
}

// A bit flipped anywhere is refused or leaves a file that can be read whole.
TEST(IndexedDataset, SurvivesEveryFlippedByte) {
  const TemporaryFolder folder;
  write_small(folder / "a", TokenType::int32, true);
  const std::string idx = read_file(folder / "a.idx");
  write_file(folder / "x.bin", read_file(folder / "a.bin"));
  int refused = 0;
  for (std::size_t at = 0; at < idx.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string bytes = idx;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      write_file(folder / "x.idx", bytes);
      try {
        const IndexedDataset dataset(folder / "x");
        for (std::int64_t i = 0; i < dataset.num_sequences(); ++i) dataset.get(i);
      } catch (const IoError&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, static_cast<int>(idx.size()));
}

TEST(IndexedDataset, OffsetsAre64Bit) {
  EXPECT_EQ(next_sequence_offset(0, 1LL << 30, TokenType::uint16), 1LL << 31);
  EXPECT_EQ(next_sequence_offset(1LL << 33, 3, TokenType::int32), (1LL << 33) + 12);
}

TEST(IndexedDataset, ReadsBeyondTwoGigabytes) {
  const TemporaryFolder folder;
  const std::int64_t first = (1LL << 30) + 24, last = 8;
  {
    std::ofstream idx(folder / "a.idx", std::ios::binary);
    const auto put = [&idx](auto value) { idx.write(reinterpret_cast<const char*>(&value), sizeof(value)); };
    idx.write("MMIDIDX\0\0", 9);
    put(std::uint64_t{1});
    put(std::uint8_t{8});
    put(std::uint64_t{2});
    put(std::uint64_t{3});
    put(static_cast<std::int32_t>(first));
    put(static_cast<std::int32_t>(last));
    put(std::int64_t{0});
    put(2 * first);
    for (const std::int64_t boundary : {0, 1, 2}) put(boundary);
    std::ofstream bin(folder / "a.bin", std::ios::binary);
    bin.seekp(2 * first);
    for (std::uint16_t token = 1; token <= last; ++token) bin.write(reinterpret_cast<const char*>(&token), 2);
  }
  const IndexedDataset dataset(folder / "a");
  EXPECT_EQ(dataset.num_tokens() * 2, (1LL << 31) + 64);
  EXPECT_EQ(dataset.get(1), (Ints{1, 2, 3, 4, 5, 6, 7, 8}));
}

/// Peak resident bytes that `body` adds in a process of its own; −1 if it fails.
std::int64_t added_bytes(const std::function<bool()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    struct rusage before {
    }, after{};
    ::getrusage(RUSAGE_SELF, &before);
    const bool good = body();
    ::getrusage(RUSAGE_SELF, &after);
    const std::int64_t bytes = good ? (after.ru_maxrss - before.ru_maxrss) * 1024 : -1;
    const bool written = ::write(ends[1], &bytes, sizeof(bytes)) == sizeof(bytes);
    ::_exit(written ? 0 : 1);
  }
  std::int64_t bytes = -1;
  EXPECT_EQ(::read(ends[0], &bytes, sizeof(bytes)), static_cast<ssize_t>(sizeof(bytes)));
  ::close(ends[0]);
  ::close(ends[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return bytes;
}

// More than 2³¹ tokens, offsets above 4 GiB, in a file with a hole: mapped, indexed and read in little memory.
TEST(IndexedDataset, ReadsBeyondFourGigabytesInLittleMemory) {
  const TemporaryFolder folder;
  const std::int64_t first = (1LL << 31) - 1, second = 1000, third = 8;
  {
    std::ofstream idx(folder / "a.idx", std::ios::binary);
    const auto put = [&idx](auto value) { idx.write(reinterpret_cast<const char*>(&value), sizeof(value)); };
    idx.write("MMIDIDX\0\0", 9);
    put(std::uint64_t{1});
    put(std::uint8_t{8});
    put(std::uint64_t{3});
    put(std::uint64_t{4});
    for (const std::int64_t length : {first, second, third}) put(static_cast<std::int32_t>(length));
    for (const std::int64_t offset : {std::int64_t{0}, 2 * first, 2 * (first + second)}) put(offset);
    for (const std::int64_t boundary : {0, 1, 2, 3}) put(boundary);
    std::ofstream bin(folder / "a.bin", std::ios::binary);
    bin.seekp(2 * (first + second));
    for (std::uint16_t token = 1; token <= third; ++token) bin.write(reinterpret_cast<const char*>(&token), 2);
  }
  const std::int64_t added = added_bytes([&] {
    const auto dataset = std::make_shared<const IndexedDataset>(folder / "a");
    GptDatasetConfig config;
    config.index.seq_length = 1 << 20;
    const GptDataset samples(dataset, {0, 3}, config);
    bool end_seen = false;
    for (std::int64_t i = 0; i < samples.size() && !end_seen; i += 97) end_seen = samples.get(i).tokens[0] > 8;
    return dataset->num_tokens() == first + second + third && dataset->offset(2) > (1LL << 32) &&
           dataset->get(2) == Ints({1, 2, 3, 4, 5, 6, 7, 8}) && dataset->get(0, first - 2) == Ints({0, 0}) &&
           samples.size() == (first + second + third - 1) >> 20 && !end_seen;
  });
  EXPECT_GE(added, 0);
  EXPECT_LT(added, 200 << 20);
}

TEST(IndexedDataset, LongSequencesAndLargeIdsKeepTheirValue) {
  const TemporaryFolder folder;
  const TokenType type = optimal_token_type(66001);
  EXPECT_EQ(type, TokenType::int32);
  IndexedDatasetWriter writer(folder / "a", type);
  writer.add_sequence(Ints(65537, 66000));
  writer.end_document();
  writer.finish();
  EXPECT_EQ(hex(read_file(folder / "a.bin").substr(0, 4)), "d0010100");
  EXPECT_EQ(read_file(folder / "a.idx")[17], 4);
  const IndexedDataset dataset(folder / "a");
  EXPECT_EQ(dataset.length(0), 65537);
  EXPECT_EQ(dataset.get(0, 65536), Ints{66000});
}

TEST(FindBadToken, NamesDocumentPositionAndId) {
  const TemporaryFolder folder;
  for (const TokenType type : {TokenType::uint16, TokenType::int32, TokenType::int64}) {
    {
      IndexedDatasetWriter writer(folder / "a", type);
      writer.add_sequence(Ints{1, 2, 36});
      writer.end_document();
      writer.end_document();
      writer.add_sequence(Ints{});
      writer.add_sequence(Ints{3, 4});
      writer.add_sequence(Ints{5, 41, 40});
      writer.end_document();
      writer.finish();
    }
    const IndexedDataset dataset(folder / "a");
    for (const int threads : {1, 3}) {
      const auto bad = find_bad_token(dataset, 37, threads);
      ASSERT_TRUE(bad.has_value());
      EXPECT_EQ(bad->document, 2);
      EXPECT_EQ(bad->sequence, 3);
      EXPECT_EQ(bad->position, 3);
      EXPECT_EQ(bad->id, 41);
      EXPECT_FALSE(find_bad_token(dataset, 42, threads).has_value());
    }
  }
}

TEST(FindBadToken, FindsTheFirstOfManyAndNegativeIds) {
  const TemporaryFolder folder;
  Ints tokens(3 << 20, 5);
  IndexedDatasetWriter writer(folder / "a", TokenType::int32);
  for (const std::size_t at : {2'999'999U, 1'234'567U, 2'000'000U}) tokens[at] = -3;
  writer.add_sequence(tokens);
  writer.end_document();
  writer.finish();
  const auto bad = find_bad_token(IndexedDataset(folder / "a"), 6, 4);
  ASSERT_TRUE(bad.has_value());
  EXPECT_EQ(bad->position, 1'234'567);
  EXPECT_EQ(bad->id, -3);
}

TEST(FindBadToken, NegativeIdsOfNarrowTypes) {
  const TemporaryFolder folder;
  for (const TokenType type : {TokenType::int8, TokenType::int16}) {
    IndexedDatasetWriter writer(folder / "a", type);
    Ints tokens(5000, 100);
    tokens[4321] = -2;
    writer.add_sequence(tokens);
    writer.end_document();
    writer.finish();
    const auto bad = find_bad_token(IndexedDataset(folder / "a"), 100000, 1);
    ASSERT_TRUE(bad.has_value());
    EXPECT_EQ(bad->position, 4321);
    EXPECT_EQ(bad->id, -2);
  }
}

TEST(TokenTypes, AllReferenceRecords) {
  const auto path = testing::dataset_dir() / "dtypes.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  const Json records = testing::load_json(path);
  for (const auto& [code, name] : records["codes"].items())
    EXPECT_EQ(token_type_name(static_cast<TokenType>(std::stoi(code))), name.get<std::string>());
  for (const auto& [vocab, name] : records["optimal"].items()) {
    std::optional<std::int64_t> size;
    if (vocab != "None") size = std::stoll(vocab);
    EXPECT_EQ(token_type_name(optimal_token_type(size)), name.get<std::string>()) << vocab;
  }
}

/// Writes what `dataset` holds once more and compares the bytes.
void expect_rewrites_equal(const IndexedDataset& dataset, const std::string& prefix, const std::string& copy) {
  IndexedDatasetWriter writer(copy, dataset.type(), dataset.has_modes());
  for (std::int64_t d = 0; d < dataset.num_documents(); ++d) {
    for (std::int64_t i = dataset.document_start(d); i < dataset.document_start(d + 1); ++i)
      writer.add_sequence(dataset.get(i), dataset.has_modes() ? dataset.mode(i) : std::int8_t{0});
    writer.end_document();
  }
  writer.finish();
  EXPECT_EQ(read_file(copy + ".bin"), read_file(prefix + ".bin"));
  EXPECT_EQ(read_file(copy + ".idx"), read_file(prefix + ".idx"));
}

void expect_file(const std::string& name, const Json& record, const IndexedDataset& dataset) {
  EXPECT_EQ(token_type_name(dataset.type()), record["dtype"].get<std::string>());
  EXPECT_EQ(static_cast<int>(dataset.type()), record["dtype_code"].get<int>());
  ASSERT_EQ(dataset.num_sequences(), record["num_sequences"].get<std::int64_t>());
  Ints lengths, offsets, documents, modes;
  for (std::int64_t i = 0; i < dataset.num_sequences(); ++i) {
    lengths.push_back(dataset.length(i));
    offsets.push_back(dataset.offset(i));
    if (dataset.has_modes()) modes.push_back(dataset.mode(i));
  }
  for (std::int64_t d = 0; d <= dataset.num_documents(); ++d) documents.push_back(dataset.document_start(d));
  testing::expect_array(lengths, record["sequence_lengths"], name);
  testing::expect_array(offsets, record["sequence_pointers"], name);
  testing::expect_array(documents, record["document_indices"], name);
  ASSERT_EQ(dataset.has_modes(), record.contains("sequence_modes"));
  if (dataset.has_modes()) testing::expect_array(modes, record["sequence_modes"], name);
  for (const auto& [index, item] : record["items"].items())
    EXPECT_EQ(dataset.get(std::stoll(index)), item["tokens"].get<Ints>());
  for (const Json& get : record.value("get", Json::array())) {
    std::optional<std::int64_t> count;
    if (!get["length"].is_null()) count = get["length"].get<std::int64_t>();
    EXPECT_EQ(dataset.get(get["i"].get<std::int64_t>(), get["offset"].get<std::int64_t>(), count),
              get["tokens"].get<Ints>());
  }
}

TEST(IndexedDataset, AllReferenceFiles) {
  const auto path = testing::dataset_dir() / "files.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  const TemporaryFolder folder;
  const Json records = testing::load_json(path);
  for (const auto& [name, record] : records.items()) {
    const std::string prefix = (testing::dataset_dir() / "data" / name).string();
    const IndexedDataset dataset(prefix);
    expect_file(name, record, dataset);
    expect_rewrites_equal(dataset, prefix, folder / "copy");
    const std::string bin = read_file(folder / "copy.bin");
    EXPECT_EQ(testing::md5(std::as_bytes(std::span(bin))), record["bin_md5"].get<std::string>());
  }
  EXPECT_EQ(records.size(), 9U);
}

TEST(IndexedDataset, MergesAsTheReference) {
  const auto data = testing::dataset_dir() / "data";
  MEGATRON_REQUIRE_REFERENCE(data);
  const TemporaryFolder folder;
  for (const auto& [parts, name] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"u16", "u16_small"}, "u16_merged"}, {{"u16_modes", "u16_modes"}, "u16_modes_merged"}}) {
    IndexedDatasetWriter writer(folder / name, TokenType::uint16, name == "u16_modes_merged");
    for (const std::string& part : parts) writer.add_dataset(IndexedDataset((data / part).string()));
    writer.finish();
    EXPECT_EQ(read_file(folder / (name + ".idx")), read_file((data / (name + ".idx")).string()));
    EXPECT_EQ(read_file(folder / (name + ".bin")), read_file((data / (name + ".bin")).string()));
  }
}

}  // namespace
}  // namespace megatron::data
