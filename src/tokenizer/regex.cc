#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/check.h"

namespace megatron::tokenizer {
namespace {

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 200> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

constexpr std::string_view kWordSet = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::array<std::string_view, 12> kScripts = {"Arabic", "Bopomofo", "Cyrillic", "Devanagari", "Greek", "Han",
                                                       "Hangul", "Hebrew",   "Hiragana", "Katakana",   "Latin", "Thai"};

/// Rewrites what Oniguruma and PCRE2 read differently, or refuses it.
class Translation {
 public:
  explicit Translation(std::string_view expression) : in_(expression) {
    for (at_ = 0; at_ < in_.size(); ++at_) {
      if (in_[at_] == '\\' && at_ + 1 < in_.size())
        escape();
      else
        plain();
    }
  }
  std::string text() && { return std::move(out_); }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw ConfigError(str_cat("the regular expression ", in_, ": ", what, " at character ", at_, " is not supported"));
  }

  void plain() {
    const char c = in_[at_];
    const bool first_in_class =
        in_class_ && (at_ == class_begin_ + 1 || in_.substr(class_begin_, 2) == "[^") && at_ <= class_begin_ + 2;
    if (c == '[' && !in_class_) {
      in_class_ = true;
      class_begin_ = at_;
    } else if (c == ']' && in_class_ && !first_in_class) {
      in_class_ = false;
    } else if (c == '[' && in_class_ && in_.substr(at_, 2) != "[:") {
      refuse("a set inside a set");
    } else if (in_class_ && in_.substr(at_, 2) == "&&") {
      refuse("an intersection of sets");
    } else if (c == '[' && in_class_) {
      const std::size_t end = in_.find(":]", at_);
      if (end == std::string_view::npos) refuse("an unfinished [:");
      out_ += in_.substr(at_, end + 1 - at_);
      at_ = end + 1;
    }
    out_ += in_[at_];
  }

  void escape() {
    const char c = in_[++at_];
    if (in_class_ && (c == 'W' || c == 'H')) refuse("an opposite inside []");
    const auto set = [this](std::string_view members) {
      out_ += in_class_ ? str_cat(members) : str_cat("[", members, "]");
    };
    switch (c) {
      case 's':
        out_ += "\\p{White_Space}";
        break;
      case 'S':
        out_ += "\\P{White_Space}";
        break;
      case 'w':
        set(kWordSet);
        break;
      case 'h':
        set("0-9A-Fa-f");
        break;
      case 'W':
        out_ += str_cat("[^", kWordSet, "]");
        break;
      case 'H':
        out_ += "[^0-9A-Fa-f]";
        break;
      case 'p':
      case 'P':
        property(c);
        break;
      default:
        out_ += {'\\', c};
    }
  }

  // PCRE2 reads a script's name as Script_Extensions.
  void property(char c) {
    out_ += {'\\', c};
    const std::size_t end = in_.find('}', at_);
    if (in_.substr(at_ + 1, 1) != "{" || end == std::string_view::npos) return;
    std::string_view name = in_.substr(at_ + 2, end - at_ - 2);
    out_ += '{';
    if (name.starts_with("^")) {
      out_ += '^';
      name.remove_prefix(1);
    }
    if (std::find(kScripts.begin(), kScripts.end(), name) != kScripts.end()) out_ += "sc:";
    out_ += name;
    out_ += '}';
    at_ = end;
  }

  std::string_view in_;
  std::string out_;
  std::size_t at_ = 0, class_begin_ = 0;
  bool in_class_ = false;
};

const pcre2_code* code_of(const void* code) { return static_cast<const pcre2_code*>(code); }

}  // namespace

std::string to_pcre(std::string_view expression) { return Translation(expression).text(); }

Regex::Regex(std::string_view expression) : expression_(expression) {
  const std::string pattern = to_pcre(expression);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &error,
                                   &offset, nullptr);
  if (code == nullptr)
    throw ConfigError(
        str_cat("the regular expression ", expression, ": at character ", offset, ": ", message_of(error)));
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it the interpreter searches
  code_ = code;
}

Regex::~Regex() { pcre2_code_free(static_cast<pcre2_code*>(code_)); }

Regex::Searcher::Searcher(const Regex& regex)
    : regex_(regex), data_(pcre2_match_data_create_from_pattern(code_of(regex.code_), nullptr)) {
  if (data_ == nullptr) throw std::bad_alloc();
}

Regex::Searcher::~Searcher() { pcre2_match_data_free(static_cast<pcre2_match_data*>(data_)); }

std::optional<Piece> Regex::Searcher::find(std::string_view text, std::size_t from) {
  auto* data = static_cast<pcre2_match_data*>(data_);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t compiled = 0;
  pcre2_pattern_info(code_of(regex_.code_), PCRE2_INFO_JITSIZE, &compiled);
  // The compiled code needs no check of the whole text before each search, which would cost the square of its length.
  const int found =
      compiled > 0 ? pcre2_jit_match(code_of(regex_.code_), subject, text.size(), from, PCRE2_NOTEMPTY, data, nullptr)
                   : pcre2_match(code_of(regex_.code_), subject, text.size(), from, PCRE2_NOTEMPTY, data, nullptr);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0)
    throw Error(str_cat("the regular expression ", regex_.expression_, " fails at byte ", from,
                        " of a text: ", message_of(found)));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data);
  return Piece{bounds[0], bounds[1]};
}

}  // namespace megatron::tokenizer
