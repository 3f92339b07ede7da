#include "tokenizer/pre_tokenizers.h"

#include <array>
#include <optional>

#include "base/check.h"
#include "tokenizer/byte_bpe.h"
#include "tokenizer/replacer.h"
#include "tokenizer/unicode_text.h"

namespace megatron::tokenizer {
namespace {

/// Sequences nested deeper than this are taken for damage.
constexpr int kMaxDepth = 16;
constexpr const char* kWhiteSpace = R"(\s)";
constexpr const char* kPunctuation = R"([!-\/:-@\[-`{-~\p{P}])";
constexpr const char* kWords = R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)";

/// Scripts of their own; Han, Hiragana and Katakana count as one and stand apart.
constexpr const char* kScripts =
    "Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki "
    "Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Common "
    "Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Duployan Egyptian_Hieroglyphs Elbasan Ethiopic Georgian "
    "Glagolitic Gothic Grantha Greek Gujarati Gurmukhi Hangul Hanunoo Hatran Hebrew Imperial_Aramaic Inherited "
    "Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Kayah_Li Kharoshthi Khmer Khojki Khudawadi "
    "Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Malayalam Mandaic Manichaean Marchen "
    "Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar "
    "Nabataean New_Tai_Lue Newa Nko Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian "
    "Old_South_Arabian Old_Turkic Oriya Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician "
    "Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sora_Sompeng "
    "Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangut Telugu Thaana Thai "
    "Tibetan Tifinagh Tirhuta Ugaritic Vai Warang_Citi Yi";

/// Runs of one script; spaces and characters without a script go with the run before them. The loops never give back
/// what they took, so that long runs need no memory.
std::string scripts_regex() {
  const std::string any = R"(\x{20}\p{Cn}\p{Co})";
  const std::string japanese = R"(\p{sc:Han}\p{sc:Hiragana}\p{sc:Katakana}\x{30FC})";
  std::string regex = "[" + japanese + "][" + japanese + any + "]*+";
  const std::string_view names = kScripts;
  for (std::size_t at = 0; at < names.size();) {
    const std::size_t end = std::min(names.find(' ', at), names.size());
    const std::string_view name = names.substr(at, end - at);
    const std::string set = str_cat(R"(\p{sc:)", name, "}");
    if (name == "Common")  // holds the space and U+30FC too
      regex += str_cat(R"(|[^\P{sc:Common}\x{30FC}\x{20}](?:[^\P{sc:Common}\x{30FC}]++|[\p{Cn}\p{Co}]++)*+)");
    else
      regex += str_cat("|[", set, "][", set, any, "]*+");
    at = end + 1;
  }
  return regex;
}

SplitBehavior behavior_of(const JsonNode& node) {
  const std::string name = node.string();
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  node.refuse(str_cat("unknown behavior \"", name,
                      "\"; known are Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous"));
}

/// A string of one character.
std::string character_of(const JsonNode& node) {
  std::string text = node.string();
  if (text.empty() || character_at(text, 0).length != text.size()) node.refuse("must be one character");
  return text;
}

}  // namespace

PreTokenizer::PreTokenizer(const JsonNode& node) : whole_(make_whole_splitter()) {
  if (!node.is_null()) add(node, 0);
}

void PreTokenizer::add_regex(const std::string& regex, SplitBehavior behavior, bool invert) {
  steps_.push_back({Kind::split, make_splitter(regex, behavior, invert)});
}

void PreTokenizer::add_split(const JsonNode& node) {
  node.allow_only({"type", "pattern", "behavior", "invert"});
  const JsonNode place = node.required("pattern");
  steps_.push_back({Kind::split, Pattern::from(place).splitter(place, behavior_of(node.required("behavior")),
                                                               node.boolean_or("invert", false))});
}

void PreTokenizer::add_bytes(const JsonNode& node) {
  node.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  Step step{Kind::bytes, nullptr};
  if (node.boolean_or("add_prefix_space", true)) step.prepend = Prepend::always;
  step.splitter = node.boolean_or("use_regex", true) ? make_splitter(named_pattern("gpt2"), SplitBehavior::isolated)
                                                     : make_whole_splitter();
  // Splitting into words whose bytes are spelled is one step where neither changes the text.
  const bool joins = !steps_.empty() && steps_.back().kind == Kind::split && step.prepend == Prepend::never &&
                     !node.boolean_or("use_regex", true);
  if (joins)
    steps_.back().kind = Kind::bytes;
  else
    steps_.push_back(std::move(step));
}

void PreTokenizer::add_metaspace(const JsonNode& node) {
  node.allow_only({"type", "replacement", "add_prefix_space", "prepend_scheme", "split", "str_rep"});
  Step step{Kind::metaspace, nullptr};
  step.replacement = character_of(node.required("replacement"));
  const bool add_space = node.boolean_or("add_prefix_space", true);
  const std::string scheme = node.string_or("prepend_scheme", add_space ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    node["prepend_scheme"].refuse(str_cat("unknown scheme \"", scheme, "\"; known are always, first, never"));
  if (!add_space && scheme != "never")
    node["add_prefix_space"].refuse(str_cat("false contradicts prepend_scheme \"", scheme, "\""));
  step.prepend = scheme == "always" ? Prepend::always : scheme == "first" ? Prepend::first : Prepend::never;
  step.splitter = node.boolean_or("split", true)
                      ? make_literal_splitter(step.replacement, SplitBehavior::merged_with_next)
                      : make_whole_splitter();
  steps_.push_back(std::move(step));
}

void PreTokenizer::add(const JsonNode& node, int depth) {
  const std::string type = node.required("type").string();
  if (type == "Sequence") {
    node.allow_only({"type", "pretokenizers"});
    if (depth >= kMaxDepth) node.refuse("is nested too deeply");
    node.required("pretokenizers").for_each_element([&](std::size_t, const JsonNode& part) { add(part, depth + 1); });
  } else if (type == "ByteLevel") {
    add_bytes(node);
  } else if (type == "Metaspace") {
    add_metaspace(node);
  } else if (type == "Split") {
    add_split(node);
  } else if (type == "Whitespace") {
    node.allow_only({"type"});
    add_regex(kWords, SplitBehavior::removed, /*invert=*/true);
  } else if (type == "WhitespaceSplit") {
    node.allow_only({"type"});
    add_regex(kWhiteSpace, SplitBehavior::removed);
  } else if (type == "BertPreTokenizer") {
    node.allow_only({"type"});
    add_regex(kWhiteSpace, SplitBehavior::removed);
    add_regex(kPunctuation, SplitBehavior::isolated);
  } else if (type == "Punctuation") {
    node.allow_only({"type", "behavior"});
    const JsonNode behavior = node["behavior"];
    add_regex(kPunctuation, behavior.is_null() ? SplitBehavior::isolated : behavior_of(behavior));
  } else if (type == "Digits") {
    node.allow_only({"type", "individual_digits"});
    add_regex(R"(\p{N})",
              node.boolean_or("individual_digits", false) ? SplitBehavior::isolated : SplitBehavior::contiguous);
  } else if (type == "CharDelimiterSplit") {
    node.allow_only({"type", "delimiter"});
    steps_.push_back(
        {Kind::split, make_literal_splitter(character_of(node.required("delimiter")), SplitBehavior::removed)});
  } else if (type == "UnicodeScripts") {
    node.allow_only({"type"});
    add_regex(scripts_regex(), SplitBehavior::removed, /*invert=*/true);
  } else {
    node.refuse(str_cat("unknown pre-tokenizer \"", type,
                        "\"; known are ByteLevel, Whitespace, WhitespaceSplit, BertPreTokenizer, Metaspace, Split, "
                        "Punctuation, Digits, CharDelimiterSplit, UnicodeScripts, Sequence"));
  }
}

std::string_view PreTokenizer::prepare(const Step& step, std::string_view text, bool at_start, std::string& storage) {
  if (step.kind == Kind::split) return text;
  const bool asked = step.prepend == Prepend::always || (step.prepend == Prepend::first && at_start);
  if (step.kind == Kind::bytes) {
    if (!asked || text.starts_with(' ')) return text;
    storage.clear();
    storage.push_back(' ');
    return storage.append(text);
  }
  const bool prepend = asked && !text.starts_with(' ') && !text.starts_with(step.replacement);
  storage.reserve(text.size() + text.size() / 2 + 4);
  if (prepend) storage = step.replacement;
  std::size_t from = 0;
  for (std::size_t at; (at = text.find(' ', from)) != std::string_view::npos; from = at + 1) {
    storage += text.substr(from, at - from);
    storage += step.replacement;
  }
  return storage += text.substr(from);
}

void PreTokenizer::run(std::size_t index, std::string_view text, bool at_start, const Visit& visit) const {
  const Step& step = steps_[index];
  std::string storage;
  text = prepare(step, text, at_start, storage);
  if (index + 1 == steps_.size()) return visit(text, *step.splitter);
  std::array<Piece, 64> pieces;
  std::size_t at = 0;
  while (const std::size_t count = step.splitter->next(text, at, pieces)) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::string_view piece = text.substr(pieces[i].begin, pieces[i].end - pieces[i].begin);
      const bool first = at_start && pieces[i].begin == 0;
      if (step.kind == Kind::bytes)
        run(index + 1, bytes_to_visible(piece), first, visit);
      else
        run(index + 1, piece, first, visit);
    }
  }
}

void PreTokenizer::for_each(std::string_view text, bool at_start, const Visit& visit) const {
  if (text.empty()) return;
  if (steps_.empty()) return visit(text, *whole_);
  run(0, text, at_start, visit);
}

}  // namespace megatron::tokenizer
