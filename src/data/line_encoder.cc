#include "data/line_encoder.h"

namespace megatron::data {

void LineEncoder::encode(const LineBlock& block, EncodedBlock& out) {
  out.file = block.file;
  out.end_offset = block.end_offset;
  out.lines = out.documents = 0;
  out.text_bytes = static_cast<std::int64_t>(block.text.size());
  out.keys.resize(config_.keys.size());
  for (EncodedKey& key : out.keys) key.bytes.clear(), key.sizes.clear();
  out.skipped.clear();
  bool stopped = false;
  for_each_line(block.text, [&](std::string_view line) {
    if (stopped) return;
    ++out.lines;
    stopped = !encode_line(block.kind, line, out) && !config_.lenient;
  });
}

bool LineEncoder::encode_line(CorpusKind kind, std::string_view line, EncodedBlock& out) {
  if (kind == CorpusKind::json_lines && line.find_first_not_of(" \t\r") == std::string_view::npos) return true;
  const auto skip = [&](const char* reason_kind, const char* reason) {
    out.skipped.push_back({out.lines, reason_kind, out.skipped.size() < kKeptReasons ? reason : ""});
    // Keys that took the line before it proved bad give it back.
    for (EncodedKey& key : out.keys) {
      if (static_cast<std::int64_t>(key.sizes.size()) == out.documents) continue;
      key.bytes.resize(key.bytes.size() - static_cast<std::size_t>(key.sizes.back()));
      key.sizes.pop_back();
    }
    return false;
  };
  try {
    if (kind == CorpusKind::text) {
      add(line, out.keys[0]);
    } else {
      json_.read(line, texts_);
      for (std::size_t k = 0; k < texts_.size(); ++k) add(texts_[k], out.keys[k]);
    }
  } catch (const BadLine& error) {
    return skip(error.kind(), error.what());
  } catch (const Error& error) {
    return skip("refused by the tokenizer", error.what());
  }
  ++out.documents;
  return true;
}

void LineEncoder::add(std::string_view text, EncodedKey& key) {
  ids_.clear();
  if (!text.empty()) tokenizer_.encode(text, config_.encode, ids_);
  if (!ids_.empty() && config_.append_eod) ids_.push_back(*tokenizer_.eod());
  const std::size_t before = key.bytes.size();
  append_encoded(ids_, config_.type, key.bytes);
  key.sizes.push_back(static_cast<std::int64_t>(key.bytes.size() - before));
}

}  // namespace megatron::data
