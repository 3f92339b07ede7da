#include "tokenizer/unicode_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"

namespace megatron::tokenizer {
namespace {

bool continues(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

char32_t low_bits(char byte) { return static_cast<unsigned char>(byte) & 0x3F; }

utf8proc_category_t category_of(char32_t code) {
  return code < kInvalidByte ? utf8proc_category(static_cast<utf8proc_int32_t>(code)) : UTF8PROC_CATEGORY_CN;
}

/// What utf8proc_tolower says, and the capital letters of Unicode 16, which older versions of it do not have.
char32_t lower_case_of(char32_t code) {
  switch (code) {
    case 0x1C89:
      return 0x1C8A;
    case 0xA7CB:
      return 0x0264;
    case 0xA7CC:
      return 0xA7CD;
    case 0xA7DA:
      return 0xA7DB;
    case 0xA7DC:
      return 0x019B;
    default:
      break;
  }
  if (code >= 0x10D50 && code <= 0x10D65) return code + 0x20;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

struct Range {
  char32_t first, last;
};

bool in_any(char32_t code, const Range* ranges, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (code >= ranges[i].first && code <= ranges[i].last) return true;
  return false;
}

/// Characters that a form leaves alone and that never join with the one before: a run may be cut in front of them.
constexpr Range kStableInEveryForm[] = {{0x3400, 0x9FFF}};
constexpr Range kStableInNfc[] = {{0x00A0, 0x02FF}, {0x3400, 0x9FFF}, {0x0400, 0x0482},  {0x048A, 0x052F},
                                  {0x3041, 0x3096}, {0x30A1, 0x30FA}, {0x2010, 0x2027},  {0x2030, 0x205E},
                                  {0x3001, 0x3029}, {0xFF01, 0xFF5E}, {0x1F300, 0x1F6FF}};

bool is_stable(char32_t code, NormalForm form) {
  if (code < 0x80) return true;
  if (form == NormalForm::nfc) return in_any(code, kStableInNfc, std::size(kStableInNfc));
  return in_any(code, kStableInEveryForm, std::size(kStableInEveryForm));
}

/// Canonical order: marks behind a starter by their class, equal ones as they came.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto class_of = [](utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; };
  for (std::size_t begin = 0; begin < codes.size();) {
    if (class_of(codes[begin]) == 0) {
      ++begin;
      continue;
    }
    std::size_t end = begin + 1;
    while (end < codes.size() && class_of(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(begin),
                     codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](utf8proc_int32_t a, utf8proc_int32_t b) { return class_of(a) < class_of(b); });
    begin = end;
  }
}

void append_normal(std::string& out, std::vector<utf8proc_int32_t>& codes, NormalForm form) {
  order_marks(codes);
  auto count = static_cast<utf8proc_ssize_t>(codes.size());
  if (form == NormalForm::nfc || form == NormalForm::nfkc)
    count = utf8proc_normalize_utf32(codes.data(), count,
                                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  MEGATRON_CHECK_GE(count, 0);
  for (utf8proc_ssize_t i = 0; i < count; ++i)
    append_character(out, static_cast<char32_t>(codes[static_cast<std::size_t>(i)]));
  codes.clear();
}

void append_decomposed(std::vector<utf8proc_int32_t>& codes, char32_t code, NormalForm form) {
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatible ? UTF8PROC_COMPAT : UTF8PROC_STABLE));
  utf8proc_int32_t parts[32];
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts, std::size(parts), options, nullptr);
  MEGATRON_CHECK(count >= 0 && count <= 32, "decomposition of a character");
  codes.insert(codes.end(), parts, parts + count);
}

/// Appends the normal form of text that begins at a place where it may be cut.
void append_run(std::string& out, std::string_view text, NormalForm form) {
  std::vector<utf8proc_int32_t> codes;
  for_each_character(text, [&](char32_t code) {
    if (code < kInvalidByte) return append_decomposed(codes, code, form);
    append_normal(out, codes, form);
    append_character(out, code);
  });
  append_normal(out, codes, form);
}

}  // namespace

Character character_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1};
  const Character invalid{kInvalidByte + first, 1};
  if (first < 0xC2 || first > 0xF4 || !continues(text, at + 1)) return invalid;
  if (first < 0xE0) return {(char32_t{first} & 0x1F) << 6 | low_bits(text[at + 1]), 2};
  if (!continues(text, at + 2)) return invalid;
  if (first < 0xF0) {
    const char32_t code = (char32_t{first} & 0x0F) << 12 | low_bits(text[at + 1]) << 6 | low_bits(text[at + 2]);
    if (code < 0x800 || (code >= 0xD800 && code < 0xE000)) return invalid;
    return {code, 3};
  }
  if (!continues(text, at + 3)) return invalid;
  const char32_t code = (char32_t{first} & 0x07) << 18 | low_bits(text[at + 1]) << 12 | low_bits(text[at + 2]) << 6 |
                        low_bits(text[at + 3]);
  if (code < 0x10000 || code > 0x10FFFF) return invalid;
  return {code, 4};
}

std::size_t character_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && continues(text, begin)) --begin;
  return character_at(text, begin).length == end - begin ? begin : end - 1;
}

void append_character(std::string& out, char32_t code) {
  const auto put = [&out](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else if (code < kInvalidByte) {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(code - kInvalidByte);
  }
}

bool is_white_space(char32_t code) {
  return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

bool is_word_character(char32_t code) {
  // Circled and squared letters are alphabetic symbols.
  constexpr Range kAlphabetic[] = {
      {0x200C, 0x200D}, {0x24B6, 0x24E9}, {0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}};
  switch (category_of(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return in_any(code, kAlphabetic, std::size(kAlphabetic));
  }
}

bool is_other(char32_t code) {
  const utf8proc_category_t category = category_of(code);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
}

bool is_mark(char32_t code) {
  const utf8proc_category_t category = category_of(code);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t code) { return category_of(code) == UTF8PROC_CATEGORY_MN; }

std::string lower_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for_each_character(text, [&](char32_t code) {
    if (code < 0x80) {
      out += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
    } else if (code == 0x130) {  // the only one that becomes two: i and a dot above
      out += "i\xcc\x87";
    } else if (code < kInvalidByte) {
      append_character(out, lower_case_of(code));
    } else {
      append_character(out, code);
    }
  });
  return out;
}

bool is_surely_normal(std::string_view text, NormalForm form) {
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Character c = character_at(text, at);
    if (!is_stable(c.code, form)) return false;
    at += c.length;
  }
  return true;
}

std::string normal_form(std::string_view text, NormalForm form) {
  constexpr std::size_t kNone = std::string_view::npos;
  std::string out;
  out.reserve(text.size());
  std::size_t copied = 0, last = kNone;  // text[0, copied) is done; `last`: the stable character before `at`
  for (std::size_t at = 0; at < text.size();) {
    Character c = character_at(text, at);
    if (is_stable(c.code, form)) {
      last = at;
      at += c.length;
      continue;
    }
    const std::size_t begin = last == kNone ? at : last;
    out += text.substr(copied, begin - copied);
    while (at < text.size() && !is_stable((c = character_at(text, at)).code, form)) at += c.length;
    append_run(out, text.substr(begin, at - begin), form);
    copied = at;
    last = kNone;
  }
  return out += text.substr(copied);
}

std::size_t cluster_end(std::string_view text, std::size_t begin) {
  Character c = character_at(text, begin);
  std::size_t at = begin + c.length;
  utf8proc_int32_t state = 0;
  while (at < text.size() && c.code < kInvalidByte) {
    const Character next = character_at(text, at);
    if (next.code >= kInvalidByte || utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code),
                                                                      static_cast<utf8proc_int32_t>(next.code), &state))
      break;
    c = next;
    at += c.length;
  }
  return at;
}

}  // namespace megatron::tokenizer
