// Reading raw text: a file in blocks of whole lines, and the documents that a line holds.
//
// Two kinds: `.txt`, one document per line, any bytes; everything else is JSON Lines, one object per line. Either may
// be compressed (`.gz`, `.zst`); "-" is standard input, JSON Lines. A line ends with LF or CR LF, which do not belong
// to it; the end of the file also ends a line; a byte-order mark at the start of a file is skipped. Blank lines: in
// text they are empty documents, in JSON Lines they are no documents.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "data/byte_source.h"

namespace megatron::data {

enum class CorpusKind : std::uint8_t { text, json_lines };
/// By the file's name without .gz or .zst.
CorpusKind corpus_kind(const std::string& path);

/// Why a line is no document: `kind()` for counts, `what()` in full.
class BadLine : public Error {
 public:
  BadLine(const char* kind, const std::string& reason) : Error(reason), kind_(kind) {}
  const char* kind() const { return kind_; }

 private:
  const char* kind_;
};

/// Some whole lines of a file.
struct LineBlock {
  std::size_t file = 0;  // which of the input files
  CorpusKind kind = CorpusKind::text;
  std::string text;
  std::int64_t end_offset = 0;  // where the block ends in the (uncompressed) file
};

/// Reads files one after the other with the memory of one block (or of the longest line).
class BlockReader {
 public:
  /// Throws IoError when one of the files cannot be read.
  explicit BlockReader(std::vector<std::string> paths, std::size_t block_bytes = 1 << 20);

  /// Continues at a block's `end_offset`, before the first `next`. Throws IoError when the file is shorter.
  void seek(std::size_t file, std::int64_t offset);
  /// False at the end of the last file. Throws IoError.
  bool next(LineBlock& block);
  /// Bytes of text that blocks have been made of or passed over.
  std::int64_t bytes_read() const { return bytes_read_; }
  /// Bytes on disk taken so far and in all; `input_size` is 0 where it is unknown (standard input, pipes).
  std::int64_t input_consumed() const;
  std::int64_t input_size() const { return input_size_; }
  const std::string& path(std::size_t file) const { return paths_[file]; }

 private:
  void open_file(std::int64_t offset);
  void close_file();
  /// Appends up to one block's bytes; false at the end of the file.
  bool fill(std::string& text);

  std::vector<std::string> paths_;
  std::size_t block_bytes_;
  std::size_t file_ = 0;
  std::unique_ptr<ByteSource> source_;
  bool at_start_ = true;
  std::string carry_;  // the unfinished line after the last block
  std::int64_t offset_ = 0;
  std::int64_t bytes_read_ = 0, finished_bytes_ = 0, input_size_ = 0;
};

/// Calls `visit(line)` for each line of a block, without its end; the last line need not have one.
template <typename Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  while (!text.empty()) visit(take_line(text));
}

/// The strings under some keys at the top level of the JSON object that a line holds. Not for several threads at once.
class JsonStrings {
 public:
  explicit JsonStrings(std::vector<std::string> keys);
  ~JsonStrings();
  JsonStrings(const JsonStrings&) = delete;
  JsonStrings& operator=(const JsonStrings&) = delete;

  /// One string per key; of equal keys the last counts. Throws BadLine with a one-line reason: not JSON, not an object,
  /// a key is missing (with the keys seen), a value is not a string.
  void read(std::string_view line, std::vector<std::string>& strings);

 private:
  struct Parser;
  std::vector<std::string> keys_;
  std::unique_ptr<Parser> parser_;
};

/// The same for a single line.
std::vector<std::string> json_strings(std::string_view line, const std::vector<std::string>& keys);

}  // namespace megatron::data
