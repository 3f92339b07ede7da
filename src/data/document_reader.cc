#include "data/document_reader.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace megatron::data {

DocumentReader::DocumentReader(std::vector<std::string> paths, const std::vector<std::string>& json_keys)
    : reader_(std::move(paths)), strings_(json_keys) {}

bool DocumentReader::next_line(std::string_view& line) {
  while (rest_.empty()) {
    const std::size_t before = block_.file;
    if (!reader_.next(block_)) return false;
    if (block_.file != before) line_ = 0;
    rest_ = block_.text;
  }
  line = take_line(rest_);
  ++line_;
  return true;
}

bool DocumentReader::next(std::string& document) {
  while (waiting_.empty()) {
    std::string_view line;
    if (!next_line(line)) return false;
    if (block_.kind == CorpusKind::text) {
      document = line;
      return true;
    }
    if (trim(line).empty()) continue;
    try {
      strings_.read(line, waiting_);
    } catch (const BadLine& bad) {
      throw IoError(str_cat(reader_.path(block_.file), ":", line_, ": ", bad.what()));
    }
    std::reverse(waiting_.begin(), waiting_.end());
  }
  document = std::move(waiting_.back());
  waiting_.pop_back();
  return true;
}

}  // namespace megatron::data
