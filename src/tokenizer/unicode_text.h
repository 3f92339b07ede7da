// Characters of UTF-8 text: reading, classes, lower case, normal forms (Unicode Standard Annex 15), clusters.
// A byte that is no part of a character counts as a character of no class and is kept as it is by everything here.
// All functions take linear time; normal forms n log n in the length of one run of marks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace megatron::tokenizer {

/// The code of the byte b that is no part of a character is kInvalidByte + b.
inline constexpr char32_t kInvalidByte = 0x110000;

struct Character {
  char32_t code = 0;
  std::size_t length = 0;  // bytes, 1–4
};

/// The character at text[at]; `at` < size.
Character character_at(std::string_view text, std::size_t at);
/// Where the character that ends before text[end] begins; `end` > 0.
std::size_t character_before(std::string_view text, std::size_t end);
void append_character(std::string& out, char32_t code);

/// Calls visit(code) for every character.
template <typename Visit>
void for_each_character(std::string_view text, const Visit& visit) {
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    visit(c.code);
    at += c.length;
  }
}

bool is_white_space(char32_t code);      // Unicode's White_Space
bool is_word_character(char32_t code);   // \w of Unicode Technical Standard 18
bool is_other(char32_t code);            // control, format, private use
bool is_mark(char32_t code);             // Mn, Mc, Me
bool is_nonspacing_mark(char32_t code);  // Mn

/// Every character in lower case, without regard to its neighbours.
std::string lower_case(std::string_view text);

enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// True if `text` needs no normalising; false may be wrong.
bool is_surely_normal(std::string_view text, NormalForm form);
std::string normal_form(std::string_view text, NormalForm form);

/// The end of the extended grapheme cluster that begins at text[begin].
std::size_t cluster_end(std::string_view text, std::size_t begin);

}  // namespace megatron::tokenizer
