// Reading raw text: a file in blocks of whole lines, and the documents that a line holds.
//
// Two kinds: `.txt`, one document per line, any bytes; everything else is JSON Lines, one object per line. In both a
// line ends with LF or CR LF, which do not belong to it; the end of the file also ends a line; a byte-order mark at the
// start of a file is skipped. Blank lines: in text they are empty documents, in JSON Lines they are no documents.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::data {

enum class CorpusKind : std::uint8_t { text, json_lines };
/// By the file's name.
CorpusKind corpus_kind(const std::string& path);

/// Some whole lines of a file.
struct LineBlock {
  std::size_t file = 0;  // which of the input files
  CorpusKind kind = CorpusKind::text;
  std::string text;
};

/// Reads files one after the other with the memory of one block (or of the longest line).
class BlockReader {
 public:
  explicit BlockReader(std::vector<std::string> paths, std::size_t block_bytes = 1 << 20);
  ~BlockReader();
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  /// False at the end of the last file. Throws IoError.
  bool next(LineBlock& block);
  std::int64_t bytes_read() const { return bytes_read_; }
  const std::string& path(std::size_t file) const { return paths_[file]; }

 private:
  void open_file();
  /// Appends up to one block's bytes; false at the end of the file.
  bool fill(std::string& text);

  std::vector<std::string> paths_;
  std::size_t block_bytes_;
  std::size_t file_ = 0;
  int fd_ = -1;
  bool at_start_ = true;
  std::string carry_;  // the unfinished line after the last block
  std::int64_t bytes_read_ = 0;
};

/// Calls `visit(line)` for each line of a block, without its end; the last line need not have one.
template <typename Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    visit(line);
  }
}

/// The strings under `keys` at the top level of a JSON object; of equal keys the last counts. Throws Error with a
/// one-line reason: not JSON, not an object, a key is missing (with the keys seen), a value is not a string.
std::vector<std::string> json_strings(std::string_view line, const std::vector<std::string>& keys);

}  // namespace megatron::data
