#include "data/corpus.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace megatron::data {

CorpusKind corpus_kind(const std::string& path) {
  return path.ends_with(".txt") ? CorpusKind::text : CorpusKind::json_lines;
}

BlockReader::BlockReader(std::vector<std::string> paths, std::size_t block_bytes)
    : paths_(std::move(paths)), block_bytes_(block_bytes) {
  // A wrong name in a long list is better known before the work than after it.
  for (const std::string& path : paths_)
    if (::access(path.c_str(), R_OK) != 0) throw IoError(str_cat(path, ": cannot open: ", std::strerror(errno)));
}

BlockReader::~BlockReader() {
  if (fd_ >= 0) ::close(fd_);
}

void BlockReader::open_file() {
  fd_ = ::open(paths_[file_].c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) throw IoError(str_cat(paths_[file_], ": cannot open: ", std::strerror(errno)));
  at_start_ = true;
  carry_.clear();
}

bool BlockReader::fill(std::string& text) {
  const std::size_t start = text.size();
  text.resize(start + block_bytes_);
  ssize_t got = -1;
  do {
    got = ::read(fd_, text.data() + start, block_bytes_);
  } while (got < 0 && errno == EINTR);
  if (got < 0) throw IoError(str_cat(paths_[file_], ": cannot read: ", std::strerror(errno)));
  text.resize(start + static_cast<std::size_t>(got));
  bytes_read_ += got;
  return got > 0;
}

bool BlockReader::next(LineBlock& block) {
  for (; file_ < paths_.size(); ++file_) {
    if (fd_ < 0) open_file();
    block.file = file_;
    block.kind = corpus_kind(paths_[file_]);
    block.text = std::move(carry_);
    carry_.clear();
    bool more = true;
    std::size_t line_end = std::string::npos, searched = block.text.size();
    // A block ends with its last whole line; one that holds none is read on.
    while (more && line_end == std::string::npos) {
      more = fill(block.text);
      if (at_start_ && block.text.size() >= 3) {
        if (block.text.starts_with("\xef\xbb\xbf")) block.text.erase(0, 3);
        at_start_ = false;
        searched = 0;
      }
      if (!more || block.text.size() <= searched) continue;
      const std::size_t last = std::string_view(block.text).substr(searched).rfind('\n');
      if (last != std::string::npos) line_end = searched + last;
      searched = block.text.size();
    }
    if (line_end != std::string::npos) {
      carry_ = block.text.substr(line_end + 1);
      block.text.resize(line_end + 1);
      return true;
    }
    ::close(fd_);
    fd_ = -1;
    if (!block.text.empty()) {
      ++file_;
      return true;
    }
  }
  return false;
}

}  // namespace megatron::data
