#include "tokenizer/sentencepiece_file.h"

#include <array>
#include <cstring>
#include <optional>

#include "base/check.h"

namespace megatron::tokenizer {
namespace {

/// Reads a varint of protobuf at `at` and moves behind it; unset if the bytes end in it.
std::optional<std::uint64_t> read_varint(std::string_view bytes, std::size_t& at) {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64 && at < bytes.size(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes[at++]);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

struct Field {
  std::uint64_t number = 0, value = 0;  // of a number (a float by its bits)
  std::string_view bytes;               // of text or a message
};

/// The field at `at`, which moves behind it; unset at the end and where the bytes are damaged.
std::optional<Field> next_field(std::string_view bytes, std::size_t& at) {
  const auto tag = read_varint(bytes, at);
  if (!tag) return std::nullopt;
  Field field{*tag >> 3, 0, {}};
  const std::size_t fixed = (*tag & 7) == 1 ? 8 : (*tag & 7) == 5 ? 4 : 0;
  if (fixed > 0) {
    if (fixed > bytes.size() - at) return std::nullopt;
    std::memcpy(&field.value, bytes.data() + at, fixed);
    at += fixed;
  } else if ((*tag & 7) == 2) {
    const auto size = read_varint(bytes, at);
    if (!size || *size > bytes.size() - at) return std::nullopt;
    field.bytes = bytes.substr(at, *size);
    at += *size;
  } else {
    const auto value = (*tag & 7) == 0 ? read_varint(bytes, at) : std::nullopt;
    if (!value) return std::nullopt;
    field.value = *value;
  }
  return field;
}

SentencePieceFile::Piece read_piece(std::string_view bytes) {
  SentencePieceFile::Piece piece;
  for (std::size_t at = 0; const auto field = next_field(bytes, at);) {
    if (field->number == 1) piece.text = field->bytes;
    if (field->number == 2) std::memcpy(&piece.score, &field->value, sizeof(piece.score));
    if (field->number == 3) piece.type = static_cast<SentencePieceFile::Type>(field->value);
  }
  return piece;
}

void read_training(std::string_view bytes, SentencePieceFile& file) {
  for (std::size_t at = 0; const auto field = next_field(bytes, at);) {
    if (field->number == 3) file.model = static_cast<SentencePieceFile::Model>(field->value);
    if (field->number == 24) file.space_is_suffix = field->value != 0;
    if (field->number == 35) file.byte_fallback = field->value != 0;
  }
}

void read_normalizer(std::string_view bytes, SentencePieceFile& file) {
  for (std::size_t at = 0; const auto field = next_field(bytes, at);) {
    if (field->number == 2) file.charsmap = field->bytes;
    if (field->number == 3) file.add_dummy_prefix = field->value != 0;
    if (field->number == 4) file.remove_extra_spaces = field->value != 0;
    if (field->number == 5) file.escape_spaces = field->value != 0;
  }
}

}  // namespace

SentencePieceFile SentencePieceFile::read(const std::string& path, std::string_view bytes) {
  const auto refuse = [&](std::size_t at, std::string_view reason) {
    throw ConfigError(str_cat("--tokenizer-model ", path, ": offset ", at, " of ", bytes.size(), ": ", reason));
  };
  SentencePieceFile file;
  std::array<bool, 4> seen = {};
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t begin = at;
    const auto tag = read_varint(bytes, at);
    if (!tag || (*tag & 7) != 2)
      refuse(begin, "not a field of a SentencePiece model (damaged, or another kind of file?)");
    at = begin;
    const auto field = next_field(bytes, at);
    if (!field) refuse(begin, "the file ends inside this field");
    if (field->number < seen.size()) seen[field->number] = true;
    if (field->number == 1) file.pieces.push_back(read_piece(field->bytes));
    if (field->number == 2) read_training(field->bytes, file);
    if (field->number == 3) read_normalizer(field->bytes, file);
  }
  if (!seen[1] || !seen[2] || !seen[3])
    refuse(bytes.size(), "the file ends before the settings of the model (cut short?)");
  return file;
}

}  // namespace megatron::tokenizer
