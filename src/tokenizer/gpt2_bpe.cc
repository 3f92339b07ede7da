#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/check.h"
#include "base/text.h"
#include "tokenizer/byte_bpe_tokenizer.h"
#include "tokenizer/identity.h"
#include "tokenizer/one_line.h"

namespace megatron::tokenizer {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

using Ids = std::unordered_map<std::string, std::int64_t>;

std::string shortened(std::string_view text) { return one_line(text, 60); }

/// A JSON value in a message; lists and objects by their kind, for they may be deep.
std::string shown(const nlohmann::json& value) {
  return value.is_structured() ? std::string("an ") + value.type_name() : shortened(value.dump());
}

/// Tokens as the file spells them, and their ids.
Ids read_vocabulary(const std::string& path, const std::string& text) {
  const auto refuse = [&](const auto&... what) -> Ids {
    throw ConfigError(str_cat("--vocab-file ", path, ": ", what...));
  };
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    return refuse("at byte ", error.byte, ": not JSON (cut short or damaged?)");
  } catch (const nlohmann::json::exception&) {
    return refuse("not JSON: holds a number beyond all bounds");
  }
  if (!json.is_object() || json.empty()) return refuse("must be a JSON object of tokens and their ids");
  // Gaps are known, but a table is made up to the largest id.
  const auto limit = static_cast<std::int64_t>(4 * json.size() + 65536);
  Ids ids;
  std::unordered_map<std::int64_t, std::string> tokens;
  for (const auto& [token, id] : json.items()) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0)
      return refuse("the id of '", shortened(token), "' is ", shown(id), ", not a number from 0 on");
    if (id.get<std::int64_t>() >= limit)
      return refuse("the id of '", shortened(token), "' is ", shown(id), ", too large for ", json.size(), " tokens");
    const auto [other, is_new] = tokens.emplace(id.get<std::int64_t>(), token);
    if (!is_new)
      return refuse("'", shortened(token), "' and '", shortened(other->second), "' share the id ", id.dump());
    ids.emplace(token, id.get<std::int64_t>());
  }
  return ids;
}

std::vector<BpeMerge> read_merges(const std::string& path, std::string_view text, const Ids& ids) {
  std::vector<BpeMerge> merges;
  std::unordered_map<std::string, std::int64_t> seen;
  std::int64_t line_number = 0;
  const auto refuse = [&](const auto&... what) {
    throw ConfigError(str_cat("--merge-file ", path, ":", line_number, ": ", what...));
  };
  const auto id_of = [&](std::string_view token) {
    const auto found = ids.find(std::string(token));
    if (found == ids.end()) refuse("'", shortened(token), "' is not in the vocabulary");
    return static_cast<std::uint32_t>(found->second);
  };
  while (!text.empty()) {
    ++line_number;
    const std::string_view line = take_line(text);
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    const std::size_t blank = line.find(' ');
    if (blank == std::string_view::npos || blank == 0 || blank + 1 == line.size() ||
        line.find(' ', blank + 1) != std::string_view::npos)
      refuse("'", shortened(line), "' is not two tokens with one space between them");
    const std::string_view left = line.substr(0, blank), right = line.substr(blank + 1);
    if (const auto [first, is_new] = seen.emplace(line, line_number); !is_new)
      refuse("the merge '", shortened(line), "' stands in line ", first->second, " already");
    merges.push_back({id_of(left), id_of(right), id_of(str_cat(left, right))});
  }
  if (merges.empty()) throw ConfigError(str_cat("--merge-file ", path, ": holds no merges"));
  return merges;
}

}  // namespace

std::unique_ptr<Tokenizer> make_gpt2_bpe(const TokenizerOptions& options) {
  if (options.vocab_file.empty() || options.merge_file.empty())
    throw ConfigError("--tokenizer-type GPT2BPETokenizer needs --vocab-file vocab.json and --merge-file merges.txt");
  const std::string vocabulary = read_tokenizer_file("--vocab-file", options.vocab_file);
  const std::string merges = read_tokenizer_file("--merge-file", options.merge_file);
  const Ids ids = read_vocabulary(options.vocab_file, vocabulary);
  ByteBpeTokenizer::Parts parts;
  parts.type = "GPT2BPETokenizer";
  parts.pattern = named_pattern("gpt2");
  parts.bpe.merges = read_merges(options.merge_file, merges, ids);

  std::int64_t size = 0;
  for (const auto& token : ids) size = std::max(size, token.second + 1);
  std::vector<std::string> markers = options.special_tokens;
  markers.emplace_back(kEndOfText);
  for (const std::string& marker : markers) {
    const auto known = ids.find(marker);
    if (known != ids.end())
      parts.special.emplace_back(marker, known->second);
    else if (marker != kEndOfText)
      parts.special.emplace_back(marker, size++);
  }
  if (const auto end = ids.find(std::string(kEndOfText)); end != ids.end()) parts.eod = parts.bos = end->second;
  parts.bpe.vocabulary.resize(static_cast<std::size_t>(size));
  for (const auto& entry : ids) {
    const std::string& token = entry.first;
    const std::int64_t id = entry.second;
    if (std::any_of(parts.special.begin(), parts.special.end(), [&](const auto& s) { return s.first == token; }))
      continue;
    const auto bytes = visible_to_bytes(token);
    if (!bytes)
      throw ConfigError(str_cat("--vocab-file ", options.vocab_file, ": '", shortened(token), "' (id ", id,
                                ") is not in GPT-2's spelling of bytes"));
    parts.bpe.vocabulary[static_cast<std::size_t>(id)] = *bytes;
  }
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    if (!ids.contains(bytes_to_visible({&byte, 1})))
      throw ConfigError(str_cat("--vocab-file ", options.vocab_file, ": has no token for the byte ", b, ", '",
                                bytes_to_visible({&byte, 1}), "'; cut short or damaged?"));
  }
  const std::array<std::string_view, 2> content = {vocabulary, merges};
  TokenizerOptions read;
  read.vocab_file = options.vocab_file;
  read.merge_file = options.merge_file;
  read.special_tokens = options.special_tokens;
  parts.identity = identity_of_files(parts.type, read, content_digest(content));
  return std::make_unique<ByteBpeTokenizer>(std::move(parts));
}

}  // namespace megatron::tokenizer
