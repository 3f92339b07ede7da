#include "tokenizer/huggingface.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/check.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/byte_bpe.h"
#include "tokenizer/char_bpe.h"
#include "tokenizer/decoders.h"
#include "tokenizer/identity.h"
#include "tokenizer/json_node.h"
#include "tokenizer/normalizers.h"
#include "tokenizer/post_processors.h"
#include "tokenizer/pre_tokenizers.h"
#include "tokenizer/unigram.h"
#include "tokenizer/word_piece.h"

namespace megatron::tokenizer {
namespace {

/// The files that make up a tokenizer; a file beside tokenizer.json that is missing is empty.
struct Files {
  std::string path, tokenizer, config, special_map;

  static Files read(const TokenizerOptions& options);
};

std::string read_if_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ? read_tokenizer_file("--tokenizer-model", path.string()) : "";
}

Files Files::read(const TokenizerOptions& options) {
  if (options.tokenizer_model.empty())
    throw ConfigError("--tokenizer-type HuggingFaceTokenizer needs --tokenizer-model: a tokenizer.json or its folder");
  std::filesystem::path path = options.tokenizer_model;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    path /= "tokenizer.json";
    if (!std::filesystem::exists(path, ignored))
      throw ConfigError(str_cat("--tokenizer-model ", options.tokenizer_model,
                                ": no tokenizer.json in it; vocab.json with merges.txt is read by --tokenizer-type "
                                "GPT2BPETokenizer, tokenizer.model by SentencePieceTokenizer"));
  }
  if (path.extension() == ".model")
    throw ConfigError(str_cat("--tokenizer-model ", options.tokenizer_model,
                              ": a .model file is read by --tokenizer-type SentencePieceTokenizer"));
  Files files{path.string(), read_tokenizer_file("--tokenizer-model", path.string()), "", ""};
  if (path.filename() != "tokenizer.json") return files;
  files.config = read_if_there(path.parent_path() / "tokenizer_config.json");
  files.special_map = read_if_there(path.parent_path() / "special_tokens_map.json");
  return files;
}

// "<｜begin▁of▁sentence｜>" and "<｜end▁of▁sentence｜>", with U+FF5C and U+2581.
constexpr std::string_view kDeepSeekBegin = "<\xef\xbd\x9c\x62\x65gin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>";
constexpr std::string_view kDeepSeekEnd = "<\xef\xbd\x9c\x65nd\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>";

class HuggingFace final : public Tokenizer {
 public:
  HuggingFace(const TokenizerOptions& options, const Files& files) {
    const JsonNode json = JsonNode::parse(files.tokenizer, files.path);
    json.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                     "post_processor", "decoder", "model"});
    if (const JsonNode version = json["version"]; !version.is_null() && version.string() != "1.0")
      version.refuse(str_cat("unknown version \"", version.string(), "\"; known is \"1.0\""));
    normalizer_ = make_normalizer(json["normalizer"]);
    decoder_ = make_decoder(json["decoder"]);
    pre_tokenizer_.emplace(json["pre_tokenizer"]);
    read_model(json.required("model"), json["added_tokens"]);
    ends_ = read_post_processor(json["post_processor"], vocab_size_);
    streams_ = decoder_->streams(/*joined=*/false) && no_token_holds_inside(decoder_->end_mark());
    read_names(files);
    const std::array<std::string_view, 3> parts = {files.tokenizer, files.config, files.special_map};
    TokenizerOptions read;
    read.tokenizer_model = options.tokenizer_model;
    identity_ = identity_of_files(type(), read, content_digest(parts));
  }

  std::string_view type() const override { return "HuggingFaceTokenizer"; }
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::optional<std::int64_t> bos() const override { return bos_; }
  std::optional<std::int64_t> eod() const override { return eod_; }
  std::int64_t pad() const override { return pad_; }
  EndMarks model_ends() const override { return ends_; }
  std::string identity_json() const override { return identity_; }

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<std::int64_t>& ids) const override { encode_text(text, false, ids); }
  void encode_special(std::string_view text, std::vector<std::int64_t>& ids) const override {
    encode_text(text, true, ids);
  }

  std::string decode(std::span<const std::int64_t> ids, std::string_view eod_text) const override {
    std::string text;
    std::vector<DecodedToken> tokens;
    const auto flush = [&] {
      if (tokens.empty()) return;
      decoder_->apply(tokens);
      for (const DecodedToken& token : tokens) text += token.text;
      tokens.clear();
    };
    for (const std::int64_t id : ids) {
      check_id(id);
      if (eod_ && id == *eod_) {
        flush();
        text += eod_text;
      } else if (const AddedToken* added = added_.find(id)) {
        tokens.push_back({added->normalized_content, !spells_bytes_});
      } else if (vocabulary_->has(id)) {
        tokens.push_back({std::string(vocabulary_->text(static_cast<std::size_t>(id))), false});
      }
    }
    flush();
    return text;
  }

  bool streams() const override { return streams_; }

  std::string piece(std::int64_t id) const override {
    check_id(id);
    if (const AddedToken* added = added_.find(id)) return added->content;
    if (!vocabulary_->has(id)) return "";
    const std::string_view text = vocabulary_->text(static_cast<std::size_t>(id));
    if (spells_bytes_ || pre_tokenizer_->ends_in_bytes())
      if (const auto bytes = visible_to_bytes(text)) return *bytes;
    return std::string(text);
  }

 private:
  void check_id(std::int64_t id) const {
    if (id < 0 || id >= vocab_size_)
      throw Error(str_cat("token id ", id, " is outside the vocabulary [0, ", vocab_size_, ")"));
  }

  /// True if `mark` stands in tokens at their end only.
  bool no_token_holds_inside(std::string_view mark) const {
    if (mark.empty()) return true;
    const auto inside = [mark](std::string_view text) {
      const std::size_t at = text.find(mark);
      return at != std::string_view::npos && at + mark.size() != text.size();
    };
    for (std::size_t id = 0; id < vocabulary_->size(); ++id)
      if (inside(vocabulary_->text(id))) return false;
    return std::none_of(added_.tokens().begin(), added_.tokens().end(),
                        [&](const AddedToken& token) { return inside(token.normalized_content); });
  }

  void read_added(const JsonNode& node) {
    spells_bytes_ = normalizer_ != nullptr && normalizer_->spells_bytes();
    added_ = AddedTokens(node, *vocabulary_, normalizer_.get());
    vocab_size_ = static_cast<std::int64_t>(vocabulary_->size());
    unreachable_.assign(vocabulary_->size(), false);
    for (const AddedToken& token : added_.tokens()) {
      vocab_size_ = std::max(vocab_size_, token.id + 1);
      if (token.special && vocabulary_->has(token.id)) unreachable_[static_cast<std::size_t>(token.id)] = true;
    }
  }

  void read_model(const JsonNode& node, const JsonNode& added) {
    // The oldest files do not name the type.
    const std::string type = node.string_or("type", node["merges"].exists()                     ? "BPE"
                                                    : node["vocab"].is_array()                  ? "Unigram"
                                                    : node["max_input_chars_per_word"].exists() ? "WordPiece"
                                                                                                : "WordLevel");
    if (type == "Unigram") {
      unigram_ = UnigramFile::read(node);
      vocabulary_ = &unigram_.vocabulary;
      read_added(added);
      model_ = make_unigram(unigram_, unreachable_);
    } else if (type == "WordPiece") {
      word_piece_ = WordPieceFile::read(node);
      vocabulary_ = &word_piece_.vocabulary;
      read_added(added);
      model_ = make_word_piece(word_piece_, unreachable_);
    } else if (type == "BPE") {
      bpe_ = BpeFile::read(node);
      vocabulary_ = &bpe_.vocabulary;
      read_added(added);
      std::erase_if(bpe_.merges, [this](const BpeMerge& merge) { return unreachable_[merge.merged]; });
      if (pre_tokenizer_->ends_in_bytes() && bpe_.prefix.empty() && bpe_.suffix.empty()) make_byte_bpe();
      if (byte_bpe_ == nullptr) model_ = make_char_bpe(bpe_, unreachable_);
    } else {
      node["type"].refuse(str_cat("unknown model \"", type, "\"; known are BPE, Unigram, WordPiece"));
    }
  }

  /// Bytes need not be spelled if each has its id, or vanishes.
  void make_byte_bpe() {
    ByteBpeConfig config;
    config.vocabulary.resize(vocabulary_->size());
    std::array<bool, 256> known = {};
    for (std::size_t id = 0; id < vocabulary_->size(); ++id) {
      if (!vocabulary_->has(static_cast<std::int64_t>(id))) continue;
      auto bytes = visible_to_bytes(vocabulary_->text(id));
      if (!bytes || bytes->empty()) continue;
      if (bytes->size() == 1)
        known[static_cast<unsigned char>((*bytes)[0])] = true;
      else if (unreachable_[id])
        continue;
      config.vocabulary[id] = *std::move(bytes);
    }
    const bool all_known = std::all_of(known.begin(), known.end(), [](bool k) { return k; });
    if (!all_known && (bpe_.unknown || bpe_.byte_fallback)) return;
    config.merges = bpe_.merges;
    config.whole_pieces_first = bpe_.whole_words_first;
    byte_bpe_ = std::make_unique<ByteBpe>(std::move(config));
  }

  void read_names(const Files& files) {
    std::vector<JsonNode> beside;
    const std::string folder = std::filesystem::path(files.path).parent_path().string();
    if (!files.config.empty()) beside.push_back(JsonNode::parse(files.config, folder + "/tokenizer_config.json"));
    if (!files.special_map.empty())
      beside.push_back(JsonNode::parse(files.special_map, folder + "/special_tokens_map.json"));
    bos_ = named_id(beside, "bos_token",
                    {"<s>", "<|begin_of_text|>", "<|startoftext|>", "<bos>", kDeepSeekBegin, "[CLS]"});
    eod_ = named_id(beside, "eos_token", {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", kDeepSeekEnd, "[SEP]"});
    pad_ = named_id(beside, "pad_token", {"<pad>", "[PAD]", "<|pad|>"}).value_or(-1);
  }

  /// The id of the token that a file beside names; without such files the first of `usual` among the control tokens.
  std::optional<std::int64_t> named_id(const std::vector<JsonNode>& beside, std::string_view key,
                                       std::initializer_list<std::string_view> usual) const {
    for (const JsonNode& file : beside) {
      const JsonNode value = file[key];
      if (value.is_null()) continue;
      const JsonNode text = value.is_object() ? value.required("content") : value;
      if (const AddedToken* added = added_.find(text.string())) return added->id;
      if (const auto id = vocabulary_->find(text.string())) return *id;
      value.refuse(str_cat("\"", text.string(), "\" is not in the vocabulary"));
    }
    if (!beside.empty()) return std::nullopt;
    for (const std::string_view name : usual)
      if (const AddedToken* added = added_.find(name); added != nullptr && added->special) return added->id;
    return std::nullopt;
  }

  void encode_text(std::string_view text, bool special, std::vector<std::int64_t>& ids) const {
    added_.split_raw(text, special, [&](std::size_t begin, std::size_t end, const AddedToken* token) {
      if (token != nullptr) return ids.push_back(token->id);
      const std::string_view part = text.substr(begin, end - begin);
      if (normalizer_ == nullptr || normalizer_->leaves(part)) return encode_normal(part, begin == 0, special, ids);
      NormalizedText normalized{std::string(part), begin == 0};
      normalizer_->apply(normalized);
      encode_normal(normalized.text, normalized.at_start, special, ids);
    });
  }

  void encode_normal(std::string_view text, bool at_start, bool special, std::vector<std::int64_t>& ids) const {
    added_.split_normalized(text, special, [&](std::size_t begin, std::size_t end, const AddedToken* token) {
      if (token != nullptr) return ids.push_back(token->id);
      pre_tokenizer_->for_each(text.substr(begin, end - begin), at_start && begin == 0,
                               [&](std::string_view part, const Splitter& words) { encode_words(part, words, ids); });
    });
  }

  void encode_words(std::string_view text, const Splitter& words, std::vector<std::int64_t>& ids) const {
    if (byte_bpe_ != nullptr) return byte_bpe_->encode(text, words, ids);
    std::array<Piece, 64> pieces;
    std::size_t at = 0;
    while (const std::size_t count = words.next(text, at, pieces)) {
      for (std::size_t i = 0; i < count; ++i) {
        const std::string_view word = text.substr(pieces[i].begin, pieces[i].end - pieces[i].begin);
        if (pre_tokenizer_->ends_in_bytes())
          model_->encode(bytes_to_visible(word), ids);
        else
          model_->encode(word, ids);
      }
    }
  }

  std::unique_ptr<Normalizer> normalizer_;
  std::optional<PreTokenizer> pre_tokenizer_;
  std::unique_ptr<Decoder> decoder_;
  bool streams_ = true;
  BpeFile bpe_;  // of these three the one that the file holds
  UnigramFile unigram_;
  WordPieceFile word_piece_;
  const Vocabulary* vocabulary_ = nullptr;  // of that one
  AddedTokens added_;
  Unreachable unreachable_;
  std::unique_ptr<WordModel> model_;  // one of these two
  std::unique_ptr<ByteBpe> byte_bpe_;
  bool spells_bytes_ = false;  // the normalizer writes bytes visibly
  std::int64_t vocab_size_ = 0;
  EndMarks ends_;
  std::optional<std::int64_t> bos_, eod_;
  std::int64_t pad_ = -1;
  std::string identity_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_huggingface_tokenizer(const TokenizerOptions& options) {
  return std::make_unique<HuggingFace>(options, Files::read(options));
}

}  // namespace megatron::tokenizer
