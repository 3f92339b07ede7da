#include "data/corpus.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace megatron::data {

CorpusKind corpus_kind(const std::string& path) {
  return uncompressed_name(path).ends_with(".txt") ? CorpusKind::text : CorpusKind::json_lines;
}

BlockReader::BlockReader(std::vector<std::string> paths, std::size_t block_bytes)
    : paths_(std::move(paths)), block_bytes_(block_bytes) {
  bool known = true;
  for (const std::string& path : paths_) {
    // A wrong name in a long list is better known before the work than after it.
    if (path != "-" && ::access(path.c_str(), R_OK) != 0)
      throw IoError(str_cat(path, ": cannot open: ", std::strerror(errno)));
    const std::optional<std::int64_t> size = bytes_on_disk(path);
    known = known && size.has_value();
    input_size_ += size.value_or(0);
  }
  if (!known) input_size_ = 0;
}

void BlockReader::open_file(std::int64_t offset) {
  source_ = open_bytes(paths_[file_]);
  at_start_ = offset == 0;
  offset_ = offset;
  carry_.clear();
  if (offset == 0) return;
  source_->skip(offset);
  bytes_read_ += offset;
}

void BlockReader::close_file() {
  finished_bytes_ += source_->consumed();
  source_.reset();
}

void BlockReader::seek(std::size_t file, std::int64_t offset) {
  MEGATRON_CHECK(!source_ && file < paths_.size(), "seek to file ", file, " of ", paths_.size());
  for (file_ = 0; file_ < file; ++file_) finished_bytes_ += bytes_on_disk(paths_[file_]).value_or(0);
  open_file(offset);
}

std::int64_t BlockReader::input_consumed() const { return finished_bytes_ + (source_ ? source_->consumed() : 0); }

bool BlockReader::fill(std::string& text) {
  const std::size_t start = text.size();
  text.resize(start + block_bytes_);
  const std::size_t got = source_->read(std::span(text.data() + start, block_bytes_));
  text.resize(start + got);
  bytes_read_ += static_cast<std::int64_t>(got);
  return got > 0;
}

bool BlockReader::next(LineBlock& block) {
  for (; file_ < paths_.size(); ++file_) {
    if (!source_) open_file(0);
    block.file = file_;
    block.kind = corpus_kind(paths_[file_]);
    block.text.assign(carry_);
    carry_.clear();
    bool more = true;
    std::size_t line_end = std::string::npos, searched = block.text.size();
    // A block ends with its last whole line; one that holds none is read on.
    while (more && line_end == std::string::npos) {
      more = fill(block.text);
      if (at_start_ && block.text.size() >= 3) {
        if (block.text.starts_with("\xef\xbb\xbf")) block.text.erase(0, 3), offset_ += 3;
        at_start_ = false;
        searched = 0;
      }
      if (!more || block.text.find('\n') != std::string::npos) at_start_ = false;  // no mark can begin any more
      if (!more || block.text.size() <= searched) continue;
      const std::size_t last = std::string_view(block.text).substr(searched).rfind('\n');
      if (last != std::string::npos) line_end = searched + last;
      searched = block.text.size();
    }
    if (line_end != std::string::npos) {
      carry_.assign(block.text, line_end + 1);
      block.text.resize(line_end + 1);
    } else {
      close_file();
    }
    offset_ += static_cast<std::int64_t>(block.text.size());
    block.end_offset = offset_;
    if (line_end != std::string::npos) return true;
    if (!block.text.empty()) {
      ++file_;
      return true;
    }
  }
  return false;
}

}  // namespace megatron::data
