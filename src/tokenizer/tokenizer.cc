#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/null_tokenizer.h"

namespace megatron::tokenizer {
namespace {

constexpr std::array<std::string_view, 2> kBuilt = {"ByteLevel", "NullTokenizer"};
constexpr std::array<std::string_view, 12> kNotBuilt = {
    "BertWordPieceLowerCase",    "BertWordPieceCase",       "GPT2BPETokenizer", "SentencePieceTokenizer",
    "GPTSentencePieceTokenizer", "HuggingFaceTokenizer",    "Llama2Tokenizer",  "TikTokenizer",
    "MultimodalTokenizer",       "NullMultimodalTokenizer", "SFTTokenizer",     "byte-level"};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// Levenshtein distance without regard to case.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

[[noreturn]] void refuse_type(const std::string& type) {
  const std::string built = "built are ByteLevel and NullTokenizer";
  if (type.empty()) throw ConfigError("--tokenizer-type is missing; " + built);
  if (std::find(kNotBuilt.begin(), kNotBuilt.end(), type) != kNotBuilt.end())
    throw ConfigError(str_cat("--tokenizer-type ", type, ": not built in this version; ", built));
  std::string_view nearest = kBuilt[0];
  for (const std::string_view name : kBuilt)
    if (edit_distance(type, name) < edit_distance(type, nearest)) nearest = name;
  throw ConfigError(str_cat("--tokenizer-type ", type, ": unknown; nearest is ", nearest, " (", built, ")"));
}

}  // namespace

std::unique_ptr<Tokenizer> create_tokenizer(const std::string& type, const TokenizerOptions& options) {
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "NullTokenizer") {
    if (!options.vocab_size) throw ConfigError("--tokenizer-type NullTokenizer needs --vocab-size");
    return std::make_unique<NullTokenizer>(*options.vocab_size, options.null_eod_id, options.null_pad_id);
  }
  refuse_type(type);
}

std::unique_ptr<Tokenizer> tokenizer_from_identity(std::string_view identity) {
  const nlohmann::json json = nlohmann::json::parse(identity, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("type") || !json["type"].is_string())
    throw ConfigError(str_cat("not the identity of a tokenizer: ", identity.substr(0, 80)));
  const auto number = [&json](const char* key) -> std::optional<std::int64_t> {
    if (!json.contains(key) || !json[key].is_number_integer()) return std::nullopt;
    return json[key].get<std::int64_t>();
  };
  return create_tokenizer(json["type"].get<std::string>(), {number("vocab_size"), number("eod_id"), number("pad_id")});
}

}  // namespace megatron::tokenizer
