#include "tokenizer/normalizers.h"

#include <optional>
#include <vector>

#include "base/check.h"
#include "tokenizer/byte_bpe.h"
#include "tokenizer/replacer.h"
#include "tokenizer/unicode_text.h"

namespace megatron::tokenizer {
namespace {

/// Sequences nested deeper than this are taken for damage.
constexpr int kMaxDepth = 16;

class FormNormalizer final : public Normalizer {
 public:
  explicit FormNormalizer(NormalForm form) : form_(form) {}
  void apply(NormalizedText& text) const override {
    if (!is_surely_normal(text.text, form_)) text.text = normal_form(text.text, form_);
  }
  bool leaves(std::string_view text) const override { return is_surely_normal(text, form_); }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override { text.text = lower_case(text.text); }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalizedText& text) const override {
    std::size_t begin = 0, end = text.text.size();
    while (left_ && begin < end) {
      const Character c = character_at(text.text, begin);
      if (!is_white_space(c.code)) break;
      begin += c.length;
    }
    while (right_ && end > begin) {
      const std::size_t before = character_before(text.text, end);
      if (!is_white_space(character_at(text.text, before).code)) break;
      end = before;
    }
    if (begin > 0) text.at_start = false;
    text.text = text.text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

/// Keeps the characters that `keep` allows; `keep` may change them.
template <typename Keep>
void filter(NormalizedText& text, const Keep& keep) {
  std::string out;
  out.reserve(text.text.size());
  bool first = true;
  for_each_character(text.text, [&](char32_t code) {
    const bool kept = keep(code);
    if (kept) append_character(out, code);
    if (first && !kept) text.at_start = false;
    first = false;
  });
  text.text = std::move(out);
}

class StripAccents final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    filter(text, [](char32_t code) { return !is_mark(code); });
  }
};

class Nmt final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    filter(text, [](char32_t& code) {
      if ((code >= 1 && code <= 8) || code == 0x0B || (code >= 0x0E && code <= 0x1F) || code == 0x7F || code == 0x8F ||
          code == 0x9F)
        return false;
      if (code == 0x09 || code == 0x0A || code == 0x0C || code == 0x0D || code == 0x1680 ||
          (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 || code == 0x2581 || code == 0xFEFF ||
          code == 0xFFFD)
        code = ' ';
      return true;
    });
  }
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(NormalizedText& text) const override {
    if (!text.text.empty()) text.text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Replace final : public Normalizer {
 public:
  Replace(const JsonNode& pattern, std::string content) : replacer_(pattern, std::move(content)) {}
  void apply(NormalizedText& text) const override {
    bool begins_in_match = false;
    text.text = replacer_.replace(text.text, &begins_in_match);
    if (begins_in_match) text.at_start = false;
  }

 private:
  Replacer replacer_;
};

class SpellBytes final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override { text.text = bytes_to_visible(text.text); }
  bool spells_bytes() const override { return true; }
};

class Bert final : public Normalizer {
 public:
  Bert(bool clean, bool chinese, bool strip_accents, bool lower)
      : clean_(clean), chinese_(chinese), strip_accents_(strip_accents), lower_(lower) {}

  void apply(NormalizedText& text) const override {
    if (clean_) clean(text);
    if (chinese_) space_out_chinese(text.text);
    if (strip_accents_) {
      if (!is_surely_normal(text.text, NormalForm::nfd)) text.text = normal_form(text.text, NormalForm::nfd);
      filter(text, [](char32_t code) { return !is_nonspacing_mark(code); });
    }
    if (lower_) text.text = lower_case(text.text);
  }

 private:
  static void clean(NormalizedText& text) {
    filter(text, [](char32_t& code) {
      const bool line = code == '\t' || code == '\n' || code == '\r';
      if (code == 0 || code == 0xFFFD || (!line && is_other(code))) return false;
      if (is_white_space(code)) code = ' ';
      return true;
    });
  }

  static void space_out_chinese(std::string& text) {
    // HuggingFace's ranges, U+2B820–2B91F left out as there.
    const auto is_chinese = [](char32_t c) {
      return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
             (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
             (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
    };
    std::string out;
    out.reserve(text.size());
    for_each_character(text, [&](char32_t code) {
      const bool chinese = is_chinese(code);
      if (chinese) out += ' ';
      append_character(out, code);
      if (chinese) out += ' ';
    });
    text = std::move(out);
  }

  bool clean_, chinese_, strip_accents_, lower_;
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  void apply(NormalizedText& text) const override {
    for (const auto& part : parts_) part->apply(text);
  }
  bool leaves(std::string_view text) const override {
    for (const auto& part : parts_)
      if (!part->leaves(text)) return false;
    return true;
  }
  bool spells_bytes() const override {
    for (const auto& part : parts_)
      if (part->spells_bytes()) return true;
    return false;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

std::unique_ptr<Normalizer> make(const JsonNode& node, int depth);

std::unique_ptr<Normalizer> make_sequence(const JsonNode& node, int depth) {
  node.allow_only({"type", "normalizers"});
  if (depth >= kMaxDepth) node.refuse("is nested too deeply");
  std::vector<std::unique_ptr<Normalizer>> parts;
  node.required("normalizers").for_each_element([&](std::size_t, const JsonNode& part) {
    parts.push_back(make(part, depth + 1));
  });
  return std::make_unique<NormalizerSequence>(std::move(parts));
}

std::unique_ptr<Normalizer> make_bert(const JsonNode& node) {
  node.allow_only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool lower = node.boolean_or("lowercase", true);
  return std::make_unique<Bert>(node.boolean_or("clean_text", true), node.boolean_or("handle_chinese_chars", true),
                                node.boolean_or("strip_accents", lower), lower);
}

std::unique_ptr<Normalizer> make(const JsonNode& node, int depth) {
  const std::string type = node.required("type").string();
  const auto form = [&](NormalForm f) {
    node.allow_only({"type"});
    return std::make_unique<FormNormalizer>(f);
  };
  if (type == "Sequence") return make_sequence(node, depth);
  if (type == "NFC") return form(NormalForm::nfc);
  if (type == "NFD") return form(NormalForm::nfd);
  if (type == "NFKC") return form(NormalForm::nfkc);
  if (type == "NFKD") return form(NormalForm::nfkd);
  if (type == "BertNormalizer") return make_bert(node);
  if (type == "Precompiled") {
    node.allow_only({"type", "precompiled_charsmap"});
    return make_precompiled_normalizer(node.required("precompiled_charsmap"));
  }
  if (type == "Strip") {
    node.allow_only({"type", "strip_left", "strip_right"});
    return std::make_unique<Strip>(node.boolean_or("strip_left", true), node.boolean_or("strip_right", true));
  }
  if (type == "Replace") {
    node.allow_only({"type", "pattern", "content"});
    return std::make_unique<Replace>(node.required("pattern"), node.required("content").string());
  }
  if (type == "Prepend") {
    node.allow_only({"type", "prepend"});
    return std::make_unique<Prepend>(node.required("prepend").string());
  }
  if (type == "Lowercase" || type == "StripAccents" || type == "Nmt" || type == "ByteLevel") {
    node.allow_only({"type"});
    if (type == "Lowercase") return std::make_unique<Lowercase>();
    if (type == "StripAccents") return std::make_unique<StripAccents>();
    if (type == "Nmt") return std::make_unique<Nmt>();
    return std::make_unique<SpellBytes>();
  }
  node.refuse(str_cat("unknown normalizer \"", type,
                      "\"; known are NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, "
                      "BertNormalizer, Precompiled, Nmt, ByteLevel, Sequence"));
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const JsonNode& node) {
  if (node.is_null()) return nullptr;
  return make(node, 0);
}

}  // namespace megatron::tokenizer
