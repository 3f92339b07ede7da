// The documents of files one after the other, for what does not read blocks in parallel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus.h"

namespace megatron::data {

class DocumentReader {
 public:
  /// `paths` and `json_keys` as preprocess reads them; each key's string is a document. Throws IoError when one of the
  /// files cannot be read.
  DocumentReader(std::vector<std::string> paths, const std::vector<std::string>& json_keys);

  /// False at the end of the last file. Throws IoError, of a bad line as "FILE:LINE: reason".
  bool next(std::string& document);
  std::int64_t bytes_read() const { return reader_.bytes_read(); }

 private:
  bool next_line(std::string_view& line);

  BlockReader reader_;
  JsonStrings strings_;
  LineBlock block_;
  std::string_view rest_;
  std::int64_t line_ = 0;
  std::vector<std::string> waiting_;  // documents of the last line, the next one last
};

}  // namespace megatron::data
