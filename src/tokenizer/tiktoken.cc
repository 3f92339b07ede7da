#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/text.h"
#include "tokenizer/base64.h"
#include "tokenizer/byte_bpe_tokenizer.h"
#include "tokenizer/identity.h"
#include "tokenizer/one_line.h"

namespace megatron::tokenizer {
namespace {

using Special = std::vector<std::pair<std::string, std::int64_t>>;

/// Lines "base64 rank" in any order; the result has the bytes of each rank.
std::vector<std::string> read_ranks(const std::string& path, std::string_view text) {
  std::vector<std::string> pieces;
  std::int64_t line_number = 0;
  const auto refuse = [&](const auto&... what) {
    throw ConfigError(str_cat("--tokenizer-model ", path, ":", line_number, ": ", what...));
  };
  const auto most = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  while (!text.empty()) {
    ++line_number;
    const std::string_view line = take_line(text);
    if (line.empty()) continue;
    const std::size_t blank = line.find(' ');
    const auto bytes = from_base64(line.substr(0, blank));
    if (!bytes || bytes->empty()) refuse("'", one_line(line.substr(0, blank), 60), "' is not base64");
    const std::string_view number = blank == std::string_view::npos ? "" : line.substr(blank + 1);
    std::size_t rank = 0;
    const auto [stop, code] = std::from_chars(number.data(), number.data() + number.size(), rank);
    if (number.empty() || code != std::errc() || stop != number.data() + number.size())
      refuse("'", one_line(number, 60), "' is not a rank");
    // OpenAI's files leave out a rank here and there.
    if (rank >= most + 1000) refuse("the rank ", rank, " is too large for a file of ", most, " lines");
    if (rank >= pieces.size()) pieces.resize(rank + 1);
    if (!pieces[rank].empty()) refuse("the rank ", rank, " is given twice");
    pieces[rank] = *bytes;
  }
  return pieces;
}

/// Megatron-LM's list [{"rank": 0, "token_bytes": base64, "token_str": …}, …], ranks in order.
std::vector<std::string> read_json_ranks(const std::string& path, std::string_view text, std::size_t most) {
  const auto refuse = [&](const auto&... what) {
    throw ConfigError(str_cat("--tokenizer-model ", path, ": ", what...));
  };
  std::vector<std::string> pieces;
  try {
    for (const nlohmann::json& entry : nlohmann::json::parse(text)) {
      if (pieces.size() == most) break;
      const auto bytes = from_base64(entry.at("token_bytes").get<std::string>());
      if (!bytes || bytes->empty()) refuse("entry ", pieces.size(), ": token_bytes is not base64");
      if (entry.at("rank").get<std::int64_t>() != static_cast<std::int64_t>(pieces.size()))
        refuse("entry ", pieces.size(), ": has another rank; ranks must count from 0");
      pieces.push_back(*bytes);
    }
  } catch (const nlohmann::json::parse_error& error) {
    refuse("at byte ", error.byte, ": not JSON (cut short or damaged?)");
  } catch (const nlohmann::json::exception& error) {
    refuse("entry ", pieces.size(), ": must be {\"rank\": number, \"token_bytes\": base64}");
  }
  return pieces;
}

void check_bytes(const std::string& path, const std::vector<std::string>& pieces) {
  std::array<bool, 256> there{};
  for (const std::string& piece : pieces)
    if (piece.size() == 1) there[static_cast<unsigned char>(piece[0])] = true;
  for (std::size_t b = 0; b < 256; ++b)
    if (!there[b])
      throw ConfigError(
          str_cat("--tokenizer-model ", path, ": has no token for the byte ", b, "; cut short or damaged?"));
}

/// The markers that OpenAI's encodings have beyond their files.
Special known_markers(std::string_view pattern, std::size_t ranks) {
  if (pattern == named_pattern("cl100k") && ranks == 100256)
    return {{"<|endoftext|>", 100257},
            {"<|fim_prefix|>", 100258},
            {"<|fim_middle|>", 100259},
            {"<|fim_suffix|>", 100260},
            {"<|endofprompt|>", 100276}};
  if (pattern == named_pattern("o200k") && ranks == 199998)
    return {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}};
  return {};
}

std::string pattern_of(const TokenizerOptions& options, bool json) {
  const std::string& given = options.tiktoken_pattern;
  if (given.empty() && json) return std::string(named_pattern("v2"));
  constexpr std::string_view kNames = "r50k, cl100k, o200k, llama3, qwen2, v1, v2 or a regular expression";
  if (given.empty()) throw ConfigError(str_cat("--tokenizer-type TikTokenizer needs --tiktoken-pattern: ", kNames));
  if (const auto named = named_pattern(given); !named.empty()) return std::string(named);
  if (given.find_first_of("\\|[(") == std::string::npos)
    throw ConfigError(str_cat("--tiktoken-pattern ", given, ": unknown; known are ", kNames));
  return given;
}

void add_markers_behind(const TokenizerOptions& options, ByteBpeTokenizer::Parts& parts) {
  const std::size_t ranks = parts.bpe.vocabulary.size();
  parts.special = known_markers(parts.pattern, ranks);
  std::vector<std::string> more = options.special_tokens;
  if (parts.special.empty() && more.empty()) more.emplace_back("<|endoftext|>");
  auto next = static_cast<std::int64_t>(ranks);
  for (const auto& token : parts.special) next = std::max(next, token.second + 1);
  for (const std::string& marker : more) {
    const bool known = std::any_of(parts.special.begin(), parts.special.end(),
                                   [&](const auto& token) { return token.first == marker; });
    if (!known) parts.special.emplace_back(marker, next++);
  }
  for (const auto& [text, id] : parts.special)
    if (text == "<|endoftext|>") parts.bos = parts.eod = id;
}

/// Megatron-LM: the markers come first, <SPECIAL_n> up to their number; ranks follow.
void add_markers_before(const TokenizerOptions& options, std::int64_t count, ByteBpeTokenizer::Parts& parts) {
  std::vector<std::string> markers = options.special_tokens;
  if (markers.empty()) markers = {"<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"};
  if (count < static_cast<std::int64_t>(markers.size()))
    throw ConfigError(
        str_cat("--tiktoken-num-special-tokens ", count, ": must be at least the ", markers.size(), " named markers"));
  while (static_cast<std::int64_t>(markers.size()) < count)
    markers.push_back(str_cat("<SPECIAL_", markers.size(), ">"));
  for (std::size_t i = 0; i < markers.size(); ++i) {
    const auto id = static_cast<std::int64_t>(i);
    parts.special.emplace_back(markers[i], id);
    if (markers[i] == "<s>") parts.bos = id;
    if (markers[i] == "</s>") parts.eod = id;
    if (markers[i] == "<pad>") parts.pad = id;
  }
  const auto shift = static_cast<std::uint32_t>(count);
  parts.bpe.vocabulary.insert(parts.bpe.vocabulary.begin(), markers.size(), std::string());
  for (BpeMerge& merge : parts.bpe.merges) merge = {merge.left + shift, merge.right + shift, merge.merged + shift};
}

}  // namespace

std::unique_ptr<Tokenizer> make_tiktoken(const TokenizerOptions& options) {
  constexpr std::int64_t kMegatronSpecial = 1000, kMegatronMost = std::int64_t{1} << 17;
  const std::string& path = options.tokenizer_model;
  if (path.empty()) throw ConfigError("--tokenizer-type TikTokenizer needs --tokenizer-model FILE.tiktoken");
  const std::string text = read_tokenizer_file("--tokenizer-model", path);
  const bool json = text.starts_with('[');
  ByteBpeTokenizer::Parts parts;
  parts.type = "TikTokenizer";
  parts.pattern = pattern_of(options, json);
  const std::int64_t special = options.tiktoken_num_special_tokens.value_or(kMegatronSpecial);
  const std::int64_t most = options.vocab_size.value_or(kMegatronMost) - special;
  if (json && most < 256)
    throw ConfigError(str_cat("--vocab-size ", options.vocab_size.value_or(kMegatronMost),
                              ": leaves fewer than 256 tokens ", "beside ", special,
                              " markers (--tiktoken-num-special-tokens)"));
  parts.bpe.vocabulary = json ? read_json_ranks(path, text, static_cast<std::size_t>(most)) : read_ranks(path, text);
  check_bytes(path, parts.bpe.vocabulary);
  parts.bpe.merges = merges_of_ranks(parts.bpe.vocabulary);
  parts.bpe.rank = BpeMerges::Rank::merged_id;
  parts.bpe.whole_pieces_first = true;
  if (json)
    add_markers_before(options, special, parts);
  else
    add_markers_behind(options, parts);
  const std::array<std::string_view, 1> content = {text};
  // Equal ids, equal identity: the pattern by its text, and of the numbers those that count.
  TokenizerOptions read;
  read.tokenizer_model = options.tokenizer_model;
  read.special_tokens = options.special_tokens;
  read.tiktoken_pattern = parts.pattern;
  if (json) {
    read.vocab_size = static_cast<std::int64_t>(parts.bpe.vocabulary.size());
    read.tiktoken_num_special_tokens = special;
  }
  parts.identity = identity_of_files(parts.type, read, content_digest(content));
  return std::make_unique<ByteBpeTokenizer>(std::move(parts));
}

}  // namespace megatron::tokenizer
