#include "data/indexed_dataset.h"

#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace megatron::data {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");

namespace {

constexpr std::size_t kMagicBytes = 9;
constexpr char kMagic[kMagicBytes + 1] = "MMIDIDX\0\0";
constexpr std::int64_t kHeaderBytes = 34;

template <typename T>
T load(std::span<const std::byte> bytes, std::int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::string bin_path(const std::string& prefix) { return prefix + ".bin"; }
std::string idx_path(const std::string& prefix) { return prefix + ".idx"; }

MappedFile open_part(const std::string& prefix, const char* suffix) {
  try {
    return MappedFile(prefix + suffix);
  } catch (const IoError& error) {
    if (prefix.size() > 4 && (prefix.ends_with(".bin") || prefix.ends_with(".idx")))
      throw IoError(str_cat(error.what(), " (data paths are given without .bin or .idx)"));
    throw;
  }
}

template <typename T, typename Out>
void widen(const std::byte* from, std::int64_t count, Out* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    out[i] = value;
  }
}

/// Checks the header up to the type, which it returns.
TokenType read_type(const std::string& path, std::span<const std::byte> bytes) {
  if (bytes.size() < static_cast<std::size_t>(kHeaderBytes))
    throw IoError(str_cat(path, ": header at offset 0 is truncated: expected at least ", kHeaderBytes, " bytes, found ",
                          bytes.size()));
  if (std::memcmp(bytes.data(), kMagic, kMagicBytes) != 0)
    throw IoError(str_cat(path, ": offset 0: is not an index file (no MMIDIDX mark)"));
  const auto version = load<std::uint64_t>(bytes, 9);
  if (version != 1) throw IoError(str_cat(path, ": offset 9: expected version 1, found ", version));
  const auto code = load<std::uint8_t>(bytes, 17);
  if (code < 1 || code > 8)
    throw IoError(str_cat(path, ": offset 17: expected a token type code 1 to 8, found ", static_cast<int>(code)));
  return static_cast<TokenType>(code);
}

}  // namespace

std::int64_t token_type_size(TokenType type) {
  switch (type) {
    case TokenType::uint8:
    case TokenType::int8:
      return 1;
    case TokenType::int16:
    case TokenType::uint16:
      return 2;
    case TokenType::int32:
    case TokenType::float32:
      return 4;
    case TokenType::int64:
    case TokenType::float64:
      return 8;
  }
  return 0;
}

std::string_view token_type_name(TokenType type) {
  switch (type) {
    case TokenType::uint8:
      return "uint8";
    case TokenType::int8:
      return "int8";
    case TokenType::int16:
      return "int16";
    case TokenType::int32:
      return "int32";
    case TokenType::int64:
      return "int64";
    case TokenType::float64:
      return "float64";
    case TokenType::float32:
      return "float32";
    case TokenType::uint16:
      return "uint16";
  }
  return "?";
}

bool is_float(TokenType type) { return type == TokenType::float32 || type == TokenType::float64; }

TokenType stored_token_type(const std::string& prefix) {
  const MappedFile idx = open_part(prefix, ".idx");
  return read_type(idx_path(prefix), idx.bytes());
}

TokenType optimal_token_type(std::optional<std::int64_t> vocab_size) {
  return vocab_size && *vocab_size < 65500 ? TokenType::uint16 : TokenType::int32;
}

std::int64_t next_sequence_offset(std::int64_t offset, std::int64_t length, TokenType type) {
  return offset + length * token_type_size(type);
}

IndexedDataset::IndexedDataset(const std::string& prefix)
    : prefix_(prefix), idx_(open_part(prefix, ".idx")), bin_(open_part(prefix, ".bin")) {
  check_header();
  check_index();
}

void IndexedDataset::check_header() {
  const std::string path = idx_path(prefix_);
  const auto bytes = idx_.bytes();
  type_ = read_type(path, bytes);
  token_size_ = token_type_size(type_);

  const auto sequences = load<std::uint64_t>(bytes, 18);
  const auto boundaries = load<std::uint64_t>(bytes, 26);
  const auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / 32);
  if (sequences > limit || boundaries > limit)
    throw IoError(
        str_cat(path, ": offset 18: impossible counts: ", sequences, " sequences, ", boundaries, " boundaries"));
  num_sequences_ = static_cast<std::int64_t>(sequences);
  num_boundaries_ = static_cast<std::int64_t>(boundaries);
  const std::int64_t expected = kHeaderBytes + 12 * num_sequences_ + 8 * num_boundaries_;
  has_modes_ = num_sequences_ > 0 && idx_.size() == expected + num_sequences_;
  if (idx_.size() != expected && !has_modes_)
    throw IoError(str_cat(path, ": offset ", std::min(expected, idx_.size()), ": expected ", expected, " bytes for ",
                          num_sequences_, " sequences and ", num_boundaries_, " document boundaries, found ",
                          idx_.size(), idx_.size() < expected ? " (truncated)" : " (too long)"));
}

void IndexedDataset::check_index() const {
  const std::string path = idx_path(prefix_);
  const std::int64_t offsets = kHeaderBytes + 4 * num_sequences_, starts = offsets + 8 * num_sequences_;
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < num_sequences_; ++i) {
    const std::int64_t tokens = length(i), found = offset(i);
    if (tokens < 0)
      throw IoError(str_cat(path, ": offset ", kHeaderBytes + 4 * i, ": sequence ", i, " has length ", tokens));
    if (found != total)
      throw IoError(str_cat(path, ": offset ", offsets + 8 * i, ": sequence ", i, ": expected byte offset ", total,
                            ", found ", found));
    total = next_sequence_offset(total, tokens, type_);
  }
  std::int64_t previous = 0;
  for (std::int64_t i = 0; i < num_boundaries_; ++i) {
    const std::int64_t start = document_start(i);
    if (start < previous || start > num_sequences_ || (i == 0 && start != 0))
      throw IoError(str_cat(path, ": offset ", starts + 8 * i, ": document ", i, " starts at sequence ", start, " of ",
                            num_sequences_));
    previous = start;
  }
  if (num_boundaries_ == 0 || previous != num_sequences_)
    throw IoError(str_cat(path, ": offset ", starts + 8 * std::max<std::int64_t>(num_boundaries_ - 1, 0),
                          ": expected last document boundary ", num_sequences_, ", found ",
                          num_boundaries_ == 0 ? "none" : std::to_string(previous)));
  if (bin_.size() != total)
    throw IoError(str_cat(bin_path(prefix_), ": offset ", std::min(total, bin_.size()), ": expected ", total,
                          " bytes as the index says, found ", bin_.size(),
                          bin_.size() < total ? " (truncated)" : " (too long)"));
}

std::int64_t IndexedDataset::length(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < num_sequences_, prefix_, ": no sequence ", index);
  return load<std::int32_t>(idx_.bytes(), kHeaderBytes + 4 * index);
}

std::int64_t IndexedDataset::offset(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < num_sequences_, prefix_, ": no sequence ", index);
  return load<std::int64_t>(idx_.bytes(), kHeaderBytes + 4 * num_sequences_ + 8 * index);
}

std::int64_t IndexedDataset::document_start(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < num_boundaries_, prefix_, ": no document ", index);
  return load<std::int64_t>(idx_.bytes(), kHeaderBytes + 12 * num_sequences_ + 8 * index);
}

std::int8_t IndexedDataset::mode(std::int64_t index) const {
  MEGATRON_CHECK(has_modes_, prefix_, ": has no modes");
  MEGATRON_CHECK(index >= 0 && index < num_sequences_, prefix_, ": no sequence ", index);
  return load<std::int8_t>(idx_.bytes(), kHeaderBytes + 12 * num_sequences_ + 8 * num_boundaries_ + index);
}

const std::byte* IndexedDataset::part(std::int64_t index, std::int64_t first, std::int64_t count) const {
  MEGATRON_CHECK(first >= 0 && count >= 0 && first <= length(index) - count, prefix_, ": sequence ", index, " has ",
                 length(index), " tokens, asked for [", first, ", ", first + count, ")");
  return bin_.bytes().data() + offset(index) + first * token_size_;
}

void IndexedDataset::read(std::int64_t index, std::int64_t first, std::int64_t count, std::int64_t* out) const {
  const std::byte* from = part(index, first, count);
  switch (type_) {
    case TokenType::uint8:
      return widen<std::uint8_t>(from, count, out);
    case TokenType::int8:
      return widen<std::int8_t>(from, count, out);
    case TokenType::int16:
      return widen<std::int16_t>(from, count, out);
    case TokenType::int32:
      return widen<std::int32_t>(from, count, out);
    case TokenType::int64:
      return widen<std::int64_t>(from, count, out);
    case TokenType::uint16:
      return widen<std::uint16_t>(from, count, out);
    case TokenType::float64:
    case TokenType::float32:
      break;
  }
  throw Error(str_cat(prefix_, ": holds ", token_type_name(type_), " values, which are not token ids"));
}

std::vector<std::int64_t> IndexedDataset::get(std::int64_t index, std::int64_t first,
                                              std::optional<std::int64_t> count) const {
  const std::int64_t wanted = count.value_or(length(index) - first);
  MEGATRON_CHECK(wanted >= 0, prefix_, ": sequence ", index, " has ", length(index), " tokens, asked from ", first);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(wanted));
  read(index, first, wanted, tokens.data());
  return tokens;
}

std::vector<double> IndexedDataset::values(std::int64_t index, std::int64_t first,
                                           std::optional<std::int64_t> count) const {
  MEGATRON_CHECK(is_float(type_), prefix_, ": holds ", token_type_name(type_), " ids");
  const std::int64_t size = count ? *count : length(index) - first;
  const std::byte* from = part(index, first, size);
  std::vector<double> out(static_cast<std::size_t>(size));
  if (type_ == TokenType::float32)
    widen<float>(from, size, out.data());
  else
    widen<double>(from, size, out.data());
  return out;
}

}  // namespace megatron::data
