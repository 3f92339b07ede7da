#include "tokenizer/joints.h"

#include <bit>

#include "tokenizer/char_classes.h"

namespace megatron::tokenizer {
namespace {

constexpr std::uint32_t kPartial = 1U << 31;

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

/// Bytes that a character of well-formed UTF-8 has if it begins with `byte`; 0: none does.
std::size_t length_by_first(char byte) {
  const auto b = static_cast<unsigned char>(byte);
  return b < 0x80 ? 1 : b < 0xc2 ? 0 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : b < 0xf5 ? 4 : 0;
}

/// One to three bytes of a character as a number of their own.
std::uint32_t partial_key(std::string_view bytes) {
  std::uint32_t key = 0;
  for (const char c : bytes) key = key << 8 | static_cast<unsigned char>(c);
  return key | kPartial;
}

struct Side {
  bool possible = false;  // a character can end, or begin, so
  std::uint32_t key = 0;
};

/// How the text of a left symbol ends. Bytes before the last character do not matter.
Side end_of(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < 4 && continues(text[at])) --at;
  std::uint32_t code = 0;
  if (read_character(text, at, code) == text.size() - at) return {true, code};
  if (at > 0 || !continues(text[0]) || text.size() > 3) return {};
  return {true, partial_key(text)};
}

Side begin_of(std::string_view text) {
  std::uint32_t code = 0;
  if (read_character(text, 0, code) > 0) return {true, code};
  if (text.size() >= length_by_first(text[0])) return {};
  for (const char c : text.substr(1))
    if (!continues(c)) return {};
  return {true, partial_key(text)};
}

}  // namespace

Joints::Joints() : pairs_(1024, kFree), shift_(64 - 10) {}

void Joints::insert(std::uint32_t left, std::uint32_t right) {
  if (contains(left, right)) return;
  if (2 * ++count_ > pairs_.size()) {
    std::vector<std::uint64_t> old(2 * pairs_.size(), kFree);
    old.swap(pairs_);
    --shift_;
    for (const std::uint64_t key : old) {
      if (key == kFree) continue;
      std::size_t slot = home(key);
      while (pairs_[slot] != kFree) slot = (slot + 1) & (pairs_.size() - 1);
      pairs_[slot] = key;
    }
  }
  const std::uint64_t key = std::uint64_t{left} << 32 | right;
  std::size_t slot = home(key);
  while (pairs_[slot] != kFree) slot = (slot + 1) & (pairs_.size() - 1);
  pairs_[slot] = key;
}

bool Joints::contains(std::uint32_t left, std::uint32_t right) const {
  const std::uint64_t key = std::uint64_t{left} << 32 | right;
  for (std::size_t slot = home(key);; slot = (slot + 1) & (pairs_.size() - 1)) {
    if (pairs_[slot] == key) return true;
    if (pairs_[slot] == kFree) return false;
  }
}

void Joints::add(std::string_view left, std::string_view right) {
  const Side end = end_of(left), begin = begin_of(right);
  if (!end.possible || !begin.possible) return;
  if (end.key < 128 && begin.key < 128) {
    ascii_[end.key].set(begin.key);
    return;
  }
  insert(end.key, begin.key);
  if (((end.key | begin.key) & kPartial) != 0)
    partial_.set(std::size_t{static_cast<unsigned char>(left.back())} << 8 | static_cast<unsigned char>(right[0]));
}

Joints::Char Joints::read(std::string_view text, std::size_t at) {
  Char c;
  c.length = read_character(text, at, c.code);
  c.whole = c.length > 0;
  if (!c.whole) c.length = 1;
  return c;
}

bool Joints::parts_may_join(std::string_view text, std::size_t at, const Char& left, const Char& right) const {
  const auto side = [](const Char& c, std::string_view part) {
    return part.size() == c.length ? c.code : partial_key(part);
  };
  for (std::size_t l = 1; l <= left.length; ++l)
    for (std::size_t r = 1; r <= right.length; ++r)
      if (contains(side(left, text.substr(at - l, l)), side(right, text.substr(at, r)))) return true;
  return false;
}

bool Joints::may_join(std::string_view text, std::size_t at, const Char& left, const Char& right) const {
  if (!left.whole || !right.whole) return true;
  if (contains(left.code, right.code)) return true;
  const std::size_t bytes =
      std::size_t{static_cast<unsigned char>(text[at - 1])} << 8 | static_cast<unsigned char>(text[at]);
  return partial_.test(bytes) && parts_may_join(text, at, left, right);
}

std::size_t Joints::part_end(std::string_view text, std::size_t begin) const {
  Char left = read(text, begin);
  std::size_t at = begin + left.length;
  while (at < text.size()) {
    if (const auto byte = static_cast<unsigned char>(text[at]); byte < 128 && left.code < 128 && left.whole) {
      if (!ascii_[left.code].test(byte)) return at;
      left.code = byte;
      ++at;
      continue;
    }
    const Char right = read(text, at);
    if (!may_join(text, at, left, right)) return at;
    left = right;
    at += right.length;
  }
  return at;
}

}  // namespace megatron::tokenizer
