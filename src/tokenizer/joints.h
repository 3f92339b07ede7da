// Where byte-pair encoding can be done part by part: between two characters that no merge can ever bring together.
//
// A merge that reaches over the place between the characters a and b joins a symbol whose text ends with a, or (where
// symbols are bytes) with the last bytes of a, and one whose text begins with b or the first bytes of b. If the
// vocabulary has no such merge, every merge lies on one side of that place, neither side sees the other, and the ids of
// the whole are those of the two sides. Immutable once filled and shared by threads.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace megatron::tokenizer {

class Joints {
 public:
  Joints();

  /// Of a merge: the texts of the symbols that it joins, neither empty. What symbols stand for is the joined text of
  /// what they were made of.
  void add(std::string_view left, std::string_view right);

  /// Where the part that begins at text[begin] ends: at the next place that no merge reaches over, or with the text.
  /// Next to a byte that is no part of a character there is no such place. `begin` < size; linear in the part.
  std::size_t part_end(std::string_view text, std::size_t begin) const;

 private:
  struct Char {
    std::uint32_t code = 0;
    std::size_t length = 0;
    bool whole = false;  // false: a byte that is no part of a character
  };
  static Char read(std::string_view text, std::size_t at);
  /// Not for two characters of ASCII.
  bool may_join(std::string_view text, std::size_t at, const Char& left, const Char& right) const;
  bool parts_may_join(std::string_view text, std::size_t at, const Char& left, const Char& right) const;
  void insert(std::uint32_t left, std::uint32_t right);
  bool contains(std::uint32_t left, std::uint32_t right) const;
  std::size_t home(std::uint64_t key) const { return static_cast<std::size_t>(key * 0x9E3779B97F4A7C15ULL >> shift_); }

  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  std::array<std::bitset<128>, 128> ascii_;
  // Pairs of code points or, with the highest bit, of some bytes of a character.
  std::vector<std::uint64_t> pairs_;
  std::size_t count_ = 0;
  int shift_ = 0;
  // Last byte and first byte of the merges that hold only a part of one of the two characters: a coarse sieve.
  std::bitset<65536> partial_;
};

}  // namespace megatron::tokenizer
