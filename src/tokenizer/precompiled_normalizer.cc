// SentencePiece's table of replacements as tokenizer.json carries it, in base64.
#include <array>
#include <optional>

#include "base/check.h"
#include "tokenizer/base64.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/normalizers.h"
#include "tokenizer/unicode_text.h"

namespace megatron::tokenizer {
namespace {

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Charsmap table) : table_(std::move(table)) {
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
    const auto match = table_.shortest(chunk);
    if (!match) return std::nullopt;
    return match->replacement;
  }

  Charsmap table_;
  std::array<bool, 0x80> plain_ = {};
};

}  // namespace

std::unique_ptr<Normalizer> make_precompiled_normalizer(const JsonNode& charsmap) {
  std::size_t bad = 0;
  const auto decoded = from_base64(charsmap.string(), &bad);
  if (!decoded) charsmap.refuse(str_cat("is no base64 at character ", bad));
  std::string why;
  auto table = Charsmap::read(*decoded, why);
  if (!table) charsmap.refuse(why);
  return std::make_unique<Precompiled>(*std::move(table));
}

}  // namespace megatron::tokenizer
