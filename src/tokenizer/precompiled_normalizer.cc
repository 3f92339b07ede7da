// SentencePiece's normalisation table as tokenizer.json carries it: base64 of [u32 size of trie][trie][texts], the trie
// a double array of 32-bit units (darts), the texts ended by NUL and named by their offset.
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "tokenizer/base64.h"
#include "tokenizer/normalizers.h"
#include "tokenizer/unicode_text.h"

namespace megatron::tokenizer {
namespace {

class Precompiled final : public Normalizer {
 public:
  Precompiled(std::vector<std::uint32_t> units, std::string texts)
      : units_(std::move(units)), texts_(std::move(texts)) {
    for (unsigned char b = 0; b < 0x80; ++b) {
      const char c = static_cast<char>(b);
      plain_[b] = !replacement({&c, 1});
    }
  }

  void apply(NormalizedText& text) const override {
    const std::string_view in = text.text;
    std::string out;
    out.reserve(in.size());
    bool first = true;
    const auto put = [&](std::string_view part) {
      if (first && part.empty()) text.at_start = false;
      first = false;
      out += part;
    };
    for (std::size_t at = 0; at < in.size();) {
      const auto ascii = [&](std::size_t i) { return static_cast<unsigned char>(in[i]) < 0x80; };
      // Two ASCII characters are two clusters, except CR LF.
      if (ascii(at) && plain_[static_cast<unsigned char>(in[at])] && (at + 1 == in.size() || ascii(at + 1)) &&
          in[at] != '\r') {
        put(in.substr(at++, 1));
        continue;
      }
      const std::size_t end = cluster_end(in, at);
      const std::string_view cluster = in.substr(at, end - at);
      at = end;
      const auto whole = cluster.size() < 6 ? replacement(cluster) : std::nullopt;
      if (whole) {
        put(*whole);
        continue;
      }
      for (std::size_t i = 0; i < cluster.size();) {
        const Character c = character_at(cluster, i);
        const std::string_view part = cluster.substr(i, c.length);
        put(replacement(part).value_or(part));
        i += c.length;
      }
    }
    text.text = std::move(out);
  }

  bool leaves(std::string_view text) const override {
    for (const char c : text)
      if (static_cast<unsigned char>(c) >= 0x80 || !plain_[static_cast<unsigned char>(c)] || c == '\r') return false;
    return true;
  }

 private:
  /// What the table says of the shortest of its keys that `chunk` begins with.
  std::optional<std::string_view> replacement(std::string_view chunk) const {
    std::size_t node = offset_of(units_[0]);
    for (const char c : chunk) {
      if (c == '\0') return std::nullopt;
      node ^= static_cast<unsigned char>(c);
      if (node >= units_.size()) return std::nullopt;
      const std::uint32_t unit = units_[node];
      if ((unit & 0x800000FFU) != static_cast<unsigned char>(c)) return std::nullopt;
      node ^= offset_of(unit);
      if ((unit >> 8 & 1) == 0) continue;
      if (node >= units_.size()) return std::nullopt;
      const std::size_t begin = units_[node] & 0x7FFFFFFFU;
      if (begin >= texts_.size()) return std::nullopt;
      return std::string_view(texts_).substr(begin, texts_.find('\0', begin) - begin);
    }
    return std::nullopt;
  }

  static std::size_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }

  std::vector<std::uint32_t> units_;
  std::string texts_;
  std::array<bool, 0x80> plain_ = {};
};

}  // namespace

std::unique_ptr<Normalizer> make_precompiled_normalizer(const JsonNode& charsmap) {
  std::size_t bad = 0;
  const auto decoded = from_base64(charsmap.string(), &bad);
  if (!decoded) charsmap.refuse(str_cat("is no base64 at character ", bad));
  const std::string& bytes = *decoded;
  std::uint32_t size = 0;
  if (bytes.size() < 4) charsmap.refuse("is cut off: no size of the table");
  std::memcpy(&size, bytes.data(), 4);
  if (size % 4 != 0 || size == 0 || size > bytes.size() - 4)
    charsmap.refuse(str_cat("is damaged: a table of ", size, " bytes in ", bytes.size() - 4));
  std::vector<std::uint32_t> units(size / 4);
  std::memcpy(units.data(), bytes.data() + 4, size);
  std::string texts = bytes.substr(4 + size);
  if (!texts.empty() && texts.back() != '\0') charsmap.refuse("is damaged: the last replacement has no end");
  return std::make_unique<Precompiled>(std::move(units), std::move(texts));
}

}  // namespace megatron::tokenizer
