#include "data/byte_source.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "compressed.h"
#include "temporary_folder.h"

namespace megatron::data {
namespace {

using testing::gzip;
using testing::TemporaryFolder;
using testing::write_file;
using testing::zstd;

std::string read_all(const std::string& path, std::size_t piece, std::int64_t skipped = 0) {
  const auto source = open_bytes(path);
  if (skipped > 0) source->skip(skipped);
  std::string text, part(piece, '\0');
  for (std::size_t got = 0; (got = source->read(part)) > 0;) text.append(part, 0, got);
  EXPECT_EQ(source->consumed(), bytes_on_disk(path)) << path;
  return text;
}

std::string error_of(const std::string& path) {
  try {
    read_all(path, 1000);
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

std::string long_text() {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += std::to_string(i * 7919 % 10'007) + "\n";
  return text;
}

TEST(ByteSource, CompressedFilesHoldTheSameBytes) {
  const TemporaryFolder folder;
  const std::string text = long_text(), half = text.substr(0, text.size() / 2), rest = text.substr(half.size());
  write_file(folder / "a.txt", text);
  write_file(folder / "a.txt.gz", gzip(text));
  write_file(folder / "a.txt.zst", zstd(text));
  write_file(folder / "two.gz", gzip(half) + gzip("") + gzip(rest));
  write_file(folder / "two.zst", zstd(half) + zstd("") + zstd(rest));
  for (const char* name : {"a.txt", "a.txt.gz", "a.txt.zst", "two.gz", "two.zst"}) {
    EXPECT_EQ(read_all(folder / name, 4096), text) << name;
    EXPECT_EQ(read_all(folder / name, 7), text) << name;
    EXPECT_EQ(read_all(folder / name, 4096, 12'345), text.substr(12'345)) << name;
    EXPECT_THROW(open_bytes(folder / name)->skip(static_cast<std::int64_t>(text.size()) + 1), IoError) << name;
  }
  EXPECT_EQ(uncompressed_name("x.txt.gz"), "x.txt");
  EXPECT_EQ(uncompressed_name("x.jsonl.zst"), "x.jsonl");
  EXPECT_EQ(uncompressed_name("x.bz2"), "x.bz2");
}

TEST(ByteSource, DamageIsNamedWithItsPlace) {
  const TemporaryFolder folder;
  const std::string text = long_text(), gz = gzip(text), zst = zstd(text);
  write_file(folder / "cut.gz", gz.substr(0, gz.size() - 9));
  write_file(folder / "cut.zst", zst.substr(0, zst.size() - 9));
  EXPECT_NE(error_of(folder / "cut.gz").find("cut.gz: gzip data end at offset " + std::to_string(gz.size() - 9)),
            std::string::npos)
      << error_of(folder / "cut.gz");
  EXPECT_NE(error_of(folder / "cut.zst").find("cut.zst: zstd data end at offset " + std::to_string(zst.size() - 9)),
            std::string::npos)
      << error_of(folder / "cut.zst");
  std::string bad = gz;
  bad[gz.size() - 6] = static_cast<char>(bad[gz.size() - 6] ^ 1);  // the checksum
  write_file(folder / "bad.gz", bad);
  EXPECT_NE(error_of(folder / "bad.gz").find("damaged gzip data"), std::string::npos);
  write_file(folder / "plain.gz", text);
  EXPECT_NE(error_of(folder / "plain.gz").find("damaged gzip data"), std::string::npos);
  write_file(folder / "plain.zst", text);
  EXPECT_NE(error_of(folder / "plain.zst").find("damaged zstd data"), std::string::npos);
  write_file(folder / "empty.gz", "");
  EXPECT_EQ(read_all(folder / "empty.gz", 10), "");
  EXPECT_THROW(open_bytes(folder / "missing"), IoError);
}

}  // namespace
}  // namespace megatron::data
