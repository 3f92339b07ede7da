#include "tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <unordered_set>

#include "base/check.h"
#include "tokenizer/identity.h"
#include "tokenizer/sentencepiece_file.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/unicode_text.h"

namespace megatron::tokenizer {
namespace {

constexpr std::string_view kExtraSpace = "\xe2\x98\xaf";  // Megatron-LM's stand-in for a space
constexpr std::string_view kWordMark = "\xe2\x96\x81";

/// Of all kinds of characters. What the library makes of them tells whether, and how, a model is understood.
constexpr std::string_view kSamples[] = {"The quick  brown fox, 12345 times. ",
                                         " \n\tint main() { return x->y != 0xFF; }  ",
                                         "Žluťoučký kůň — naïve café…",
                                         "生活、宇宙以及一切 你好",
                                         "ﬁ Å ½ ① ㍿ ﷺ",
                                         "אבג مرحبا привет ελληνικά",
                                         "👩‍👩‍👧 🏳️‍🌈 e\u0301\u0323",
                                         "▁a▁▁b <s></s><unk><0x41>",
                                         "\xff\xc3(\xe4\xb8 \xf0\x9f",
                                         "\u00a0\u3000\u2009x\u200b\ufeff"};

/// Runs of signs and letters of many lengths: they have many ways that are equally good.
std::string sample_of_runs() {
  std::string text;
  std::uint32_t random = 1;
  for (int i = 0; i < 1200; ++i) {
    random = random * 1664525U + 1013904223U;
    text.append(1 + (random >> 16) % 40, "-=+*#./_ae0 "[(random >> 8) % 12]);
    text += " it";
  }
  return text;
}

class SentencePiece final : public Tokenizer {
 public:
  SentencePiece(const std::string& type, const TokenizerOptions& options) : type_(type) {
    if (options.tokenizer_model.empty())
      throw ConfigError(str_cat("--tokenizer-type ", type, " needs --tokenizer-model: a .model file"));
    const std::string path = model_path(options.tokenizer_model);
    const std::string bytes = read_tokenizer_file("--tokenizer-model", path);
    const SentencePieceFile file = SentencePieceFile::read(path, bytes);
    if (const auto status = library_.LoadFromSerializedProto(bytes); !status.ok())
      throw ConfigError(str_cat("--tokenizer-model ", path, ": ", status.message()));
    pieces_ = library_.GetPieceSize();
    using Sums = UnigramFile::Sums;
    for (const Sums sums : {Sums::rounded_when_kept, Sums::rounded_when_compared}) {
      model_ = SentencePieceModel::make(file, sums);
      if (same_as_library()) break;
      model_.reset();
    }
    vocab_size_ = pieces_;
    add_markers(options);
    keep_spaces_ = options.sentencepiece_keep_extra_whitespaces && encode_part("x  y") == encode_part("x y");
    const std::array<std::string_view, 1> parts = {bytes};
    TokenizerOptions read;
    read.tokenizer_model = options.tokenizer_model;
    read.special_tokens = options.special_tokens;
    read.vocab_extra_ids = options.vocab_extra_ids;
    read.sentencepiece_legacy = !read.special_tokens.empty() || read.vocab_extra_ids > 0;  // says nothing without them
    read.sentencepiece_keep_extra_whitespaces = keep_spaces_;
    identity_ = identity_of_files(type, read, content_digest(parts));
  }

  std::string_view type() const override { return type_; }
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::optional<std::int64_t> bos() const override { return existing(library_.bos_id()); }
  std::optional<std::int64_t> eod() const override { return existing(library_.eos_id()); }
  std::int64_t pad() const override { return library_.pad_id(); }
  std::string identity_json() const override { return identity_; }

  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<std::int64_t>& ids) const override {
    if (!keep_spaces_) return encode_part(text, ids);
    // Each stretch ends in the stand-in, so that the library keeps the space before it; its id is dropped again.
    const std::string marked = with_stand_ins(text);
    for (std::size_t begin = 0; begin <= marked.size();) {
      const std::size_t end = std::min(marked.find(kExtraSpace, begin), marked.size());
      if (end > begin) {
        const std::size_t before = ids.size();
        encode_part(marked.substr(begin, end - begin) + std::string(kExtraSpace), ids);
        if (ids.size() > before) ids.pop_back();
      }
      begin = end + kExtraSpace.size();
    }
  }

  void encode_special(std::string_view text, std::vector<std::int64_t>& ids) const override {
    bool after_added = false;
    const auto plain = [&](std::string_view part) {
      if (part.empty()) return;
      const std::size_t from = ids.size();
      encode(part, ids);
      // As in Megatron-LM: no lone word mark behind an added marker.
      if (after_added && ids.size() > from && ids[from] == library_.PieceToId(kWordMark))
        ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(from));
    };
    std::size_t from = 0;
    while (const auto match = markers_.find(text, from)) {
      plain(text.substr(from, match->begin - from));
      ids.push_back(match->id);
      after_added = added_.contains(match->id);
      from = match->end;
    }
    plain(text.substr(from));
  }

  std::string decode(std::span<const std::int64_t> ids, std::string_view eod_text) const override {
    std::string text;
    std::vector<int> run;
    const auto flush = [&] {
      std::string part;
      if (run.empty()) return;
      if (const auto status = library_.Decode(run, &part); !status.ok()) throw Error(status.ToString());
      text += part;
      run.clear();
    };
    for (const std::int64_t id : ids) {
      check_id(id);
      if (const auto marker = eod() == id ? std::optional(eod_text) : added_text(id)) {
        flush();
        text += *marker;
      } else {
        run.push_back(static_cast<int>(id));
      }
    }
    flush();
    return text;
  }

  std::string piece(std::int64_t id) const override {
    check_id(id);
    if (const auto text = added_text(id)) return std::string(*text);
    return library_.IdToPiece(static_cast<int>(id));
  }

 private:
  static std::optional<std::int64_t> existing(int id) {
    return id < 0 ? std::nullopt : std::optional<std::int64_t>(id);
  }

  /// The file itself, or tokenizer.model of a folder.
  static std::string model_path(const std::string& given) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(given, ignored)) return given;
    return (std::filesystem::path(given) / "tokenizer.model").string();
  }

  void check_id(std::int64_t id) const {
    if (id < 0 || id >= vocab_size_)
      throw Error(str_cat("token id ", id, " is outside the vocabulary [0, ", vocab_size_, ")"));
  }

  std::optional<std::string_view> added_text(std::int64_t id) const {
    if (!added_.contains(id)) return std::nullopt;
    return markers_.text_of(id);
  }

  void add_markers(const TokenizerOptions& options) {
    std::vector<std::string> names = options.special_tokens;
    for (std::int64_t i = 0; i < options.vocab_extra_ids; ++i) names.push_back(str_cat("<extra_id_", i, ">"));
    if (!names.empty() && !options.sentencepiece_legacy)
      throw ConfigError(str_cat(options.special_tokens.empty() ? "--vocab-extra-ids" : "--tokenizer-special-tokens",
                                " with --tokenizer-type ", type_,
                                " needs --tokenizer-sentencepiece-legacy; a model trained with them has them already"));
    std::vector<std::pair<std::string, std::int64_t>> markers;
    for (const std::string& name : names) {
      const auto same = [&](const auto& marker) { return marker.first == name; };
      if (std::any_of(markers.begin(), markers.end(), same)) continue;
      const int known = library_.PieceToId(name);
      markers.emplace_back(name, known == library_.unk_id() ? vocab_size_++ : known);
      added_.insert(markers.back().second);
    }
    for (int id = 0; id < pieces_; ++id)
      if (library_.IsControl(id) && !library_.IdToPiece(id).empty()) markers.emplace_back(library_.IdToPiece(id), id);
    markers_ = SpecialTokens(std::move(markers));
  }

  std::vector<int> encode_by_library(std::string_view text) const {
    std::vector<int> ids;
    if (const auto status = library_.Encode(text, &ids); !status.ok()) throw Error(status.ToString());
    return ids;
  }

  bool same_as_library() const {
    const auto same = [this](std::string_view text) {
      const std::vector<int> wanted = encode_by_library(text);
      const std::vector<std::int64_t> ids = encode_part(text);
      return std::equal(ids.begin(), ids.end(), wanted.begin(), wanted.end());
    };
    return model_ != nullptr && std::all_of(std::begin(kSamples), std::end(kSamples), same) && same(sample_of_runs());
  }

  std::vector<std::int64_t> encode_part(std::string_view text) const {
    std::vector<std::int64_t> ids;
    encode_part(text, ids);
    return ids;
  }

  void encode_part(std::string_view text, std::vector<std::int64_t>& ids) const {
    if (model_ != nullptr) return model_->encode(text, ids);
    const std::vector<int> part = encode_by_library(text);
    ids.insert(ids.end(), part.begin(), part.end());
  }

  /// Spaces that the library would drop, each with the stand-in beside it.
  static std::string with_stand_ins(std::string_view text) {
    const std::string mark = str_cat(" ", kExtraSpace, " ");
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (i > 0 && text[i - 1] == ' ' && text[i] == ' ') out += mark;
      const bool at_end = i + 1 == text.size() || (i + 2 == text.size() && text[i + 1] == '\n');
      if (text[i] == ' ' && (i == 0 || at_end))
        out += mark;
      else
        out += text[i];
    }
    while (!out.empty()) {
      const std::size_t last = character_before(out, out.size());
      if (!is_white_space(character_at(out, last).code)) break;
      out.resize(last);
    }
    return out;
  }

  std::string type_;
  sentencepiece::SentencePieceProcessor library_;
  std::unique_ptr<const SentencePieceModel> model_;  // encodes in the library's place; null: it encodes itself
  int pieces_ = 0;
  std::int64_t vocab_size_ = 0;
  SpecialTokens markers_;                   // control symbols and added markers
  std::unordered_set<std::int64_t> added_;  // ids of the added ones
  bool keep_spaces_ = false;
  std::string identity_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_tokenizer(const std::string& type, const TokenizerOptions& options) {
  return std::make_unique<SentencePiece>(type, options);
}

}  // namespace megatron::tokenizer
