#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/text.h"
#include "tokenizer/byte_bpe_tokenizer.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/huggingface.h"
#include "tokenizer/identity.h"
#include "tokenizer/null_tokenizer.h"
#include "tokenizer/sentencepiece_tokenizer.h"

namespace megatron::tokenizer {
namespace {

std::unique_ptr<Tokenizer> make_byte_level(const TokenizerOptions&) { return std::make_unique<ByteLevel>(); }

std::unique_ptr<Tokenizer> make_null(const TokenizerOptions& options) {
  if (!options.vocab_size) throw ConfigError("--tokenizer-type NullTokenizer needs --vocab-size");
  return std::make_unique<NullTokenizer>(*options.vocab_size, options.null_eod_id, options.null_pad_id);
}

template <const char* type>
std::unique_ptr<Tokenizer> make_sentencepiece(const TokenizerOptions& options) {
  return make_sentencepiece_tokenizer(type, options);
}

constexpr char kSentencePiece[] = "SentencePieceTokenizer";
constexpr char kGptSentencePiece[] = "GPTSentencePieceTokenizer";
constexpr char kLlama2[] = "Llama2Tokenizer";

struct Maker {
  std::string_view type;
  std::unique_ptr<Tokenizer> (*make)(const TokenizerOptions& options);
};

constexpr Maker kMakers[] = {
    {"ByteLevel", make_byte_level},
    {"NullTokenizer", make_null},
    {"GPT2BPETokenizer", make_gpt2_bpe},
    {"TikTokenizer", make_tiktoken},
    {"HuggingFaceTokenizer", make_huggingface_tokenizer},
    {kSentencePiece, make_sentencepiece<kSentencePiece>},
    {kGptSentencePiece, make_sentencepiece<kGptSentencePiece>},
    {kLlama2, make_sentencepiece<kLlama2>},
};

constexpr std::string_view kNotBuilt[] = {"BertWordPieceLowerCase",  "BertWordPieceCase", "MultimodalTokenizer",
                                          "NullMultimodalTokenizer", "SFTTokenizer",      "byte-level"};

constexpr auto kBuilt = [] {
  std::array<std::string_view, std::size(kMakers)> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kMakers[i].type;
  return names;
}();

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

[[noreturn]] void refuse_type(const std::string& type) {
  std::string built = "built are ";
  for (std::size_t i = 0; i < kBuilt.size(); ++i)
    built += str_cat(i == 0 ? "" : i + 1 == kBuilt.size() ? " and " : ", ", kBuilt[i]);
  if (type.empty()) throw ConfigError("--tokenizer-type is missing; " + built);
  if (std::find(std::begin(kNotBuilt), std::end(kNotBuilt), type) != std::end(kNotBuilt))
    throw ConfigError(str_cat("--tokenizer-type ", type, ": not built in this version; ", built));
  std::string_view nearest = kBuilt[0];
  for (const std::string_view name : kBuilt)
    if (edit_distance(lower(type), lower(name)) < edit_distance(lower(type), lower(nearest))) nearest = name;
  throw ConfigError(str_cat("--tokenizer-type ", type, ": unknown; nearest is ", nearest, " (", built, ")"));
}

std::string hash_of_identity(nlohmann::json identity) {
  identity.erase("files");
  const std::string text = identity.dump();
  const std::array<std::string_view, 1> parts = {text};
  return content_digest(parts);
}

/// How many bytes at the end of the text begin a UTF-8 character that further bytes may complete, or are marks that
/// decoders put in place of such bytes.
std::size_t unsure_bytes(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbf\xbd";
  std::size_t marks = 0;
  for (std::string_view rest = text; marks < 3 && rest.ends_with(kMark); rest.remove_suffix(kMark.size())) ++marks;
  if (marks > 0) return marks * kMark.size();
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const std::size_t length = byte >= 0xf5 || byte < 0xc2 ? 1 : byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : 2;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

std::span<const std::string_view> tokenizer_types() { return kBuilt; }

std::unique_ptr<Tokenizer> create_tokenizer(const std::string& type, const TokenizerOptions& options) {
  for (const std::string& name : options.special_tokens)
    if (name.empty()) throw ConfigError("--tokenizer-special-tokens: an empty name");
  for (const Maker& maker : kMakers)
    if (maker.type == type) return maker.make(options);
  refuse_type(type);
}

std::unique_ptr<Tokenizer> tokenizer_from_identity(std::string_view identity, const TokenizerOptions& moved) {
  const nlohmann::json json = nlohmann::json::parse(identity, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("type") || !json["type"].is_string())
    throw ConfigError(str_cat("not the identity of a tokenizer: ", identity.substr(0, 80)));
  TokenizerOptions options = options_of_identity(identity);
  for (const auto file :
       {&TokenizerOptions::vocab_file, &TokenizerOptions::merge_file, &TokenizerOptions::tokenizer_model})
    if (!(moved.*file).empty()) options.*file = moved.*file;
  auto made = create_tokenizer(json["type"].get<std::string>(), options);
  if (json.contains("content") && made->identity_hash() != hash_of_identity(json))
    throw ConfigError(str_cat("the tokenizer ", made->type(), " at ", json.value("files", nlohmann::json()).dump(),
                              " is not the one that was used before: the files hold something else now"));
  return made;
}

void Tokenizer::encode(std::string_view text, const EncodeOptions& options, std::vector<std::int64_t>& ids) const {
  const auto add_end = [&](const char* name, const std::optional<std::int64_t>& id) {
    if (!id) throw ConfigError(str_cat("the tokenizer ", type(), " has no token for ", name, " of a text"));
    ids.push_back(*id);
  };
  const EndMarks own = options.ends == TextEnds::model ? model_ends() : EndMarks{};
  if (options.ends == TextEnds::bos || options.ends == TextEnds::both) add_end("the beginning", bos());
  ids.insert(ids.end(), own.before.begin(), own.before.end());
  if (options.parse_special)
    encode_special(text, ids);
  else
    encode(text, ids);
  ids.insert(ids.end(), own.after.begin(), own.after.end());
  if (options.ends == TextEnds::eos || options.ends == TextEnds::both) add_end("the end", eod());
}

std::string Tokenizer::piece(std::int64_t id) const {
  const std::array<std::int64_t, 1> one = {id};
  return decode(one, "<eod>");
}

std::string Tokenizer::identity_hash() const { return hash_of_identity(nlohmann::json::parse(identity_json())); }

std::string StreamDecoder::push(std::int64_t id) {
  ids_.push_back(id);
  if (!tokenizer_.streams()) return "";
  const std::string text = tokenizer_.decode(ids_);
  const std::size_t sure = text.size() - unsure_bytes(text);
  std::string more;
  if (sure > given_) {
    more = text.substr(given_, sure - given_);
    given_ = sure;
  }
  forget(text.size());
  return more;
}

// Some text stays in front of what is to come, so that what a decoder does at the edge of a text (a space that is
// dropped, a word mark) happens there.
void StreamDecoder::forget(std::size_t text_size) {
  constexpr std::size_t kMostIds = 64, kKeptBytes = 16;
  if (ids_.size() < kMostIds) return;
  const auto last = std::span(ids_).last(kMostIds / 2);
  const std::size_t kept = tokenizer_.decode(last).size(), waiting = text_size - given_;
  if (kept < waiting + kKeptBytes) return;
  ids_ = std::vector<std::int64_t>(last.begin(), last.end());
  given_ = kept - waiting;
}

std::string StreamDecoder::finish() {
  const std::string text = tokenizer_.decode(ids_);
  std::string rest = text.substr(std::min(given_, text.size()));
  ids_.clear();
  given_ = 0;
  return rest;
}

}  // namespace megatron::tokenizer
