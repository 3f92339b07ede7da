#include "fuzz/promises.h"

#include <array>
#include <fstream>
#include <vector>

namespace megatron::fuzz {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr std::array<std::string_view, 6> kTexts = {
    "The quick  brown fox, isn't it?\n\n 12345 \t",
    "caf\xc3\xa9 \xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7",
    "<|endoftext|></s><unk>[CLS]",
    "\xff\xfe\x80 a\xc3 \xf0\x9f\x98",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ""};

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = byte < 0x80 ? 1 : byte >= 0xc2 && byte < 0xe0 ? 2 : byte >= 0xe0 && byte < 0xf0 ? 3 : 4;
    if (byte >= 0x80 && (byte < 0xc2 || byte > 0xf4)) return false;
    if (i + length > text.size()) return false;
    for (std::size_t k = 1; k < length; ++k)
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    i += length;
  }
  return true;
}

void check_stream(const tokenizer::Tokenizer& tokenizer, const Ids& ids) {
  const std::string whole = tokenizer.decode(ids);
  const bool characters = is_utf8(whole);
  tokenizer::StreamDecoder stream(tokenizer);
  std::string joined;
  for (const std::int64_t id : ids) {
    const std::string part = stream.push(id);
    promise(!characters || is_utf8(part), "a stream cut a character");
    joined += part;
  }
  joined += stream.finish();
  promise(joined == whole, "a stream gave '", joined, "', the whole is '", whole, "'");
}

void check_text(const tokenizer::Tokenizer& tokenizer, std::string_view text, bool exact) {
  for (const bool special : {false, true}) {
    Ids ids;
    tokenizer.encode(text, {.parse_special = special}, ids);
    for (const std::int64_t id : ids)
      promise(id >= 0 && id < tokenizer.vocab_size(), "id ", id, " of ", tokenizer.vocab_size());
    if (exact && !special)
      promise(tokenizer.decode(ids) == text, "'", text, "' comes back as '", tokenizer.decode(ids), "'");
    check_stream(tokenizer, ids);
  }
}

}  // namespace

std::string_view as_text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

void write_bytes(const std::string& path, std::string_view bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw IoError(path + ": cannot write");
}

void check_refusal(const Error& error, const std::string& path) {
  const std::string_view what = error.what();
  promise(what.find(path) != std::string_view::npos, "a refusal does not name the file: ", what);
  promise(what.find('\n') == std::string_view::npos, "a refusal has several lines: ", what);
  promise(what.size() < path.size() + 2000, "a refusal is as long as ", what.size(), " bytes");
}

void check_tokenizer(const tokenizer::Tokenizer& tokenizer, std::string_view own, bool exact) {
  promise(tokenizer.vocab_size() > 0, "no ids");
  try {
    for (const std::string_view text : kTexts) check_text(tokenizer, text, exact);
    check_text(tokenizer, own, exact);
  } catch (const Error&) {
    // A text may be refused (a vocabulary without a token for unknown text, a search without end), but not by these.
    promise(!exact, "a text was refused");
    return;
  }
  Ids ids;
  for (std::size_t i = 0; i + 1 < own.size(); i += 2)
    ids.push_back((static_cast<unsigned char>(own[i]) + 256 * static_cast<unsigned char>(own[i + 1])) %
                  tokenizer.vocab_size());
  check_stream(tokenizer, ids);
}

}  // namespace megatron::fuzz
