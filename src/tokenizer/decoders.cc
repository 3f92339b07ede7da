#include "tokenizer/decoders.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/check.h"
#include "tokenizer/byte_bpe.h"
#include "tokenizer/replacer.h"
#include "tokenizer/unicode_text.h"

namespace megatron::tokenizer {
namespace {

using Tokens = std::vector<DecodedToken>;
constexpr int kMaxDepth = 16;

std::string replace_all(std::string_view text, std::string_view what, std::string_view by) {
  if (what.empty()) return std::string(text);
  std::string out;
  std::size_t from = 0;
  for (std::size_t at; (at = text.find(what, from)) != std::string_view::npos; from = at + what.size()) {
    out += text.substr(from, at - from);
    out += by;
  }
  return out += text.substr(from);
}

/// Takes back the spaces that cutting English into words puts in.
std::string clean_up(std::string text) {
  constexpr std::array<std::array<std::string_view, 2>, 11> kRules = {{{" .", "."},
                                                                       {" ?", "?"},
                                                                       {" !", "!"},
                                                                       {" ,", ","},
                                                                       {" ' ", "'"},
                                                                       {" n't", "n't"},
                                                                       {" 'm", "'m"},
                                                                       {" do not", " don't"},
                                                                       {" 's", "'s"},
                                                                       {" 've", "'ve"},
                                                                       {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) text = replace_all(text, from, to);
  return text;
}

class JoinWithSpaces final : public Decoder {
 public:
  void apply(Tokens& tokens) const override {
    for (std::size_t i = 1; i < tokens.size(); ++i) tokens[i].text.insert(0, " ");
  }
};

class ByteLevelDecoder final : public Decoder {
 public:
  void apply(Tokens& tokens) const override {
    for (DecodedToken& token : tokens) {
      if (token.literal) continue;
      if (auto bytes = visible_to_bytes(token.text)) token.text = *std::move(bytes);
    }
    fuse(tokens);
  }
  bool joins() const override { return true; }
  static void fuse(Tokens& tokens) {
    std::string all;
    for (const DecodedToken& token : tokens) all += token.text;
    tokens.assign(1, DecodedToken{std::move(all)});
  }
};

class Fuse final : public Decoder {
 public:
  void apply(Tokens& tokens) const override { ByteLevelDecoder::fuse(tokens); }
  bool joins() const override { return true; }
  bool streams(bool) const override { return true; }
};

class WordPieceDecoder final : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void apply(Tokens& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string& text = tokens[i].text;
      if (i > 0) {
        if (text.starts_with(prefix_))
          text.erase(0, prefix_.size());
        else
          text.insert(0, " ");
      }
      if (cleanup_) text = clean_up(std::move(text));
    }
  }
  bool streams(bool joined) const override { return !joined || !cleanup_; }

 private:
  std::string prefix_;
  bool cleanup_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(std::string replacement, bool prepended)
      : replacement_(std::move(replacement)), prepended_(prepended) {}
  void apply(Tokens& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i].text = replace_all(tokens[i].text, replacement_, i == 0 && prepended_ ? "" : " ");
  }

 private:
  std::string replacement_;
  bool prepended_;
};

class ByteFallback final : public Decoder {
 public:
  void apply(Tokens& tokens) const override {
    for (DecodedToken& token : tokens) {
      const std::string& text = token.text;
      if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') continue;
      unsigned byte = 0;
      const auto [stop, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
      if (error == std::errc() && stop == text.data() + 5)
        token.text.assign(1, static_cast<char>(static_cast<unsigned char>(byte)));
    }
  }
};

class StripDecoder final : public Decoder {
 public:
  StripDecoder(std::string content, std::int64_t start, std::int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void apply(Tokens& tokens) const override {
    for (DecodedToken& token : tokens) {
      std::string_view text = token.text;
      for (std::int64_t i = 0; i < start_ && text.starts_with(content_); ++i) text.remove_prefix(content_.size());
      for (std::int64_t i = 0; i < stop_ && text.ends_with(content_); ++i) text.remove_suffix(content_.size());
      token.text = std::string(text);
    }
  }
  // What is dropped at the start is less than what StreamDecoder keeps in front.
  bool streams(bool joined) const override { return !joined || (start_ <= 4 && stop_ <= 4); }

 private:
  std::string content_;
  std::int64_t start_, stop_;
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(const JsonNode& pattern, std::string content) : replacer_(pattern, std::move(content)) {}
  void apply(Tokens& tokens) const override {
    for (DecodedToken& token : tokens) token.text = replacer_.replace(token.text);
  }

 private:
  Replacer replacer_;
};

class BpeDecoder final : public Decoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(Tokens& tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i].text = replace_all(tokens[i].text, suffix_, i + 1 == tokens.size() ? "" : " ");
  }
  std::string_view end_mark() const override { return suffix_; }

 private:
  std::string suffix_;
};

class CtcDecoder final : public Decoder {
 public:
  CtcDecoder(std::string pad, std::string delimiter, bool cleanup)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleanup_(cleanup) {}
  void apply(Tokens& tokens) const override {
    Tokens out;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i].text == tokens[i - 1].text) continue;
      std::string text = replace_all(tokens[i].text, pad_, "");
      if (cleanup_) text = replace_all(clean_up(std::move(text)), delimiter_, " ");
      if (!text.empty()) out.push_back({std::move(text), tokens[i].literal});
    }
    tokens = std::move(out);
  }

 private:
  std::string pad_, delimiter_;
  bool cleanup_;
};

class DecoderSequence final : public Decoder {
 public:
  explicit DecoderSequence(std::vector<std::unique_ptr<Decoder>> parts) : parts_(std::move(parts)) {}
  void apply(Tokens& tokens) const override {
    for (const auto& part : parts_) part->apply(tokens);
  }
  bool joins() const override {
    return std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->joins(); });
  }
  bool streams(bool joined) const override {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      // What the parts before made of the tokens is not known where tokens are looked at.
      if (!parts_[i]->streams(joined) || (i > 0 && !parts_[i]->end_mark().empty())) return false;
      joined = joined || parts_[i]->joins();
    }
    return true;
  }
  std::string_view end_mark() const override { return parts_.empty() ? std::string_view() : parts_[0]->end_mark(); }

 private:
  std::vector<std::unique_ptr<Decoder>> parts_;
};

std::unique_ptr<Decoder> make(const JsonNode& node, int depth);

std::unique_ptr<Decoder> make_sequence(const JsonNode& node, int depth) {
  node.allow_only({"type", "decoders"});
  if (depth >= kMaxDepth) node.refuse("is nested too deeply");
  std::vector<std::unique_ptr<Decoder>> parts;
  node.required("decoders").for_each_element([&](std::size_t, const JsonNode& part) {
    parts.push_back(make(part, depth + 1));
  });
  return std::make_unique<DecoderSequence>(std::move(parts));
}

std::unique_ptr<Decoder> make_metaspace(const JsonNode& node) {
  node.allow_only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  const bool add_space = node.boolean_or("add_prefix_space", true);
  const std::string scheme = node.string_or("prepend_scheme", add_space ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    node["prepend_scheme"].refuse(str_cat("unknown scheme \"", scheme, "\"; known are always, first, never"));
  const std::string replacement = node.required("replacement").string();
  if (replacement.empty()) node["replacement"].refuse("must be one character");
  return std::make_unique<MetaspaceDecoder>(replacement, scheme != "never");
}

std::unique_ptr<Decoder> make_strip(const JsonNode& node) {
  node.allow_only({"type", "content", "start", "stop"});
  const std::string content = node.required("content").string();
  if (content.empty() || character_at(content, 0).length != content.size())
    node["content"].refuse("must be one character");
  return std::make_unique<StripDecoder>(content, node.integer_or("start", 0), node.integer_or("stop", 0));
}

std::unique_ptr<Decoder> make(const JsonNode& node, int depth) {
  const std::string type = node.required("type").string();
  if (type == "Sequence") return make_sequence(node, depth);
  if (type == "Metaspace") return make_metaspace(node);
  if (type == "Strip") return make_strip(node);
  if (type == "ByteLevel") {
    node.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return std::make_unique<ByteLevelDecoder>();
  }
  if (type == "WordPiece") {
    node.allow_only({"type", "prefix", "cleanup"});
    return std::make_unique<WordPieceDecoder>(node.string_or("prefix", "##"), node.boolean_or("cleanup", true));
  }
  if (type == "Replace") {
    node.allow_only({"type", "pattern", "content"});
    return std::make_unique<ReplaceDecoder>(node.required("pattern"), node.required("content").string());
  }
  if (type == "BPEDecoder") {
    node.allow_only({"type", "suffix"});
    return std::make_unique<BpeDecoder>(node.string_or("suffix", "</w>"));
  }
  if (type == "CTC") {
    node.allow_only({"type", "pad_token", "word_delimiter_token", "cleanup"});
    return std::make_unique<CtcDecoder>(node.string_or("pad_token", "<pad>"),
                                        node.string_or("word_delimiter_token", "|"), node.boolean_or("cleanup", true));
  }
  if (type == "ByteFallback" || type == "Fuse") {
    node.allow_only({"type"});
    if (type == "Fuse") return std::make_unique<Fuse>();
    return std::make_unique<ByteFallback>();
  }
  node.refuse(str_cat("unknown decoder \"", type,
                      "\"; known are ByteLevel, WordPiece, Metaspace, ByteFallback, Fuse, Strip, Replace, BPEDecoder, "
                      "CTC, Sequence"));
}

}  // namespace

std::unique_ptr<Decoder> make_decoder(const JsonNode& node) {
  if (node.is_null()) return std::make_unique<JoinWithSpaces>();
  return make(node, 0);
}

}  // namespace megatron::tokenizer
