#include <unistd.h>

#include <cstring>
#include <limits>

#include "base/check.h"
#include "data/indexed_dataset.h"

namespace megatron::data {
namespace {

template <typename T>
void narrow(std::span<const std::int64_t> tokens, TokenType type, std::vector<std::byte>& out) {
  const std::size_t start = out.size();
  out.resize(start + tokens.size() * sizeof(T));
  std::byte* to = out.data() + start;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto value = static_cast<T>(tokens[i]);
    if (static_cast<std::int64_t>(value) != tokens[i]) {
      out.resize(start);
      throw Error(str_cat("token id ", tokens[i], " does not fit into ", token_type_name(type)));
    }
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

bool continues(const WriterPosition& from) { return from.boundaries > 0; }

}  // namespace

void append_encoded(std::span<const std::int64_t> tokens, TokenType type, std::vector<std::byte>& out) {
  switch (type) {
    case TokenType::uint8:
      return narrow<std::uint8_t>(tokens, type, out);
    case TokenType::int8:
      return narrow<std::int8_t>(tokens, type, out);
    case TokenType::int16:
      return narrow<std::int16_t>(tokens, type, out);
    case TokenType::int32:
      return narrow<std::int32_t>(tokens, type, out);
    case TokenType::int64:
      return narrow<std::int64_t>(tokens, type, out);
    case TokenType::uint16:
      return narrow<std::uint16_t>(tokens, type, out);
    case TokenType::float64:
    case TokenType::float32:
      break;
  }
  throw Error(str_cat("token ids cannot be written as ", token_type_name(type)));
}

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, TokenType type, bool multimodal,
                                           const WriterPosition& from)
    : prefix_(prefix),
      type_(type),
      multimodal_(multimodal),
      num_sequences_(from.sequences),
      num_tokens_(from.tokens),
      num_boundaries_(from.boundaries),
      // Should one of them not open, the others keep what they hold.
      bin_(prefix + ".bin", from.tokens * token_type_size(type), continues(from)),
      idx_(prefix + ".idx"),
      lengths_(prefix + ".idx.lengths", from.sequences * static_cast<std::int64_t>(sizeof(std::int32_t)),
               continues(from)),
      boundaries_(prefix + ".idx.documents", from.boundaries * static_cast<std::int64_t>(sizeof(std::int64_t)),
                  continues(from)),
      modes_(prefix + ".idx.modes", multimodal ? from.sequences : 0, continues(from)) {
  keep(false);
  if (continues(from)) return;
  boundaries_.write_value(std::int64_t{0});
  num_boundaries_ = 1;
}

IndexedDatasetWriter::~IndexedDatasetWriter() = default;

void IndexedDatasetWriter::count_sequence(std::int64_t length, std::int8_t mode) {
  MEGATRON_CHECK(!sealed_, prefix_, ": is sealed");
  if (length > std::numeric_limits<std::int32_t>::max())
    throw Error(str_cat("a sequence of ", length, " tokens is longer than the format's limit of 2^31 − 1"));
  lengths_.write_value(static_cast<std::int32_t>(length));
  if (multimodal_) modes_.write_value(mode);
  ++num_sequences_;
  num_tokens_ += length;
}

void IndexedDatasetWriter::add_sequence(std::span<const std::int64_t> tokens, std::int8_t mode) {
  scratch_.clear();
  append_encoded(tokens, type_, scratch_);
  count_sequence(static_cast<std::int64_t>(tokens.size()), mode);
  bin_.write(scratch_);
}

void IndexedDatasetWriter::add_values(std::span<const double> values, std::int8_t mode) {
  if (!is_float(type_)) throw Error(str_cat("values cannot be written as ", token_type_name(type_)));
  if (type_ == TokenType::float64) return add_encoded_sequence(std::as_bytes(values), mode);
  std::vector<float> rounded(values.begin(), values.end());
  add_encoded_sequence(std::as_bytes(std::span<const float>(rounded)), mode);
}

void IndexedDatasetWriter::add_encoded_sequence(std::span<const std::byte> bytes, std::int8_t mode) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  MEGATRON_CHECK_EQ(size % token_type_size(type_), 0);
  count_sequence(size / token_type_size(type_), mode);
  bin_.write(bytes);
}

void IndexedDatasetWriter::end_document() {
  MEGATRON_CHECK(!sealed_, prefix_, ": is sealed");
  boundaries_.write_value(num_sequences_);
  ++num_boundaries_;
}

void IndexedDatasetWriter::add_dataset(const IndexedDataset& other) { add_documents(other, 0, other.num_documents()); }

void IndexedDatasetWriter::add_documents(const IndexedDataset& other, std::int64_t first, std::int64_t last) {
  MEGATRON_CHECK(first >= 0 && first <= last && last <= other.num_documents(), "documents [", first, ", ", last,
                 ") of ", other.num_documents());
  if (other.type() != type_)
    throw ConfigError(str_cat(other.prefix(), ": holds ", token_type_name(other.type()), ", expected ",
                              token_type_name(type_), " as in the data sets before"));
  if (multimodal_ != other.has_modes() && other.num_sequences() > 0)
    throw ConfigError(
        str_cat(other.prefix(), other.has_modes() ? ": has modes" : ": has no modes", ", unlike the data sets before"));
  const std::int64_t begin = other.document_start(first), end = other.document_start(last);
  const std::int64_t moved = num_sequences_ - begin, tokens_before = num_tokens_;
  for (std::int64_t i = begin; i < end; ++i)
    count_sequence(other.length(i), multimodal_ ? other.mode(i) : std::int8_t{0});
  for (std::int64_t d = first + 1; d <= last; ++d) {
    boundaries_.write_value(moved + other.document_start(d));
    ++num_boundaries_;
  }
  const std::int64_t bytes = (num_tokens_ - tokens_before) * token_type_size(type_);
  if (bytes > 0)
    bin_.write(
        other.bin_bytes().subspan(static_cast<std::size_t>(other.offset(begin)), static_cast<std::size_t>(bytes)));
}

WriterPosition IndexedDatasetWriter::checkpoint() {
  bin_.sync();
  lengths_.sync();
  boundaries_.sync();
  if (multimodal_) modes_.sync();
  return {num_sequences_, num_tokens_, num_boundaries_};
}

void IndexedDatasetWriter::keep(bool kept) {
  for (OutputFile* file : {&bin_, &idx_, &lengths_, &boundaries_, &modes_}) file->keep(kept);
}

void IndexedDatasetWriter::write_index() {
  idx_.write(std::as_bytes(std::span("MMIDIDX\0\0", 9)));
  idx_.write_value(std::uint64_t{1});
  idx_.write_value(static_cast<std::uint8_t>(type_));
  idx_.write_value(static_cast<std::uint64_t>(num_sequences_));
  idx_.write_value(static_cast<std::uint64_t>(num_boundaries_));
  const auto copy = [this](std::span<const std::byte> piece) { idx_.write(piece); };
  lengths_.read_back(copy);
  std::int64_t offset = 0;
  lengths_.read_back([&](std::span<const std::byte> piece) {
    for (std::size_t i = 0; i < piece.size(); i += sizeof(std::int32_t)) {
      std::int32_t length;
      std::memcpy(&length, piece.data() + i, sizeof(length));
      idx_.write_value(offset);
      offset = next_sequence_offset(offset, length, type_);
    }
  });
  boundaries_.read_back(copy);
  modes_.read_back(copy);
}

void IndexedDatasetWriter::seal() {
  MEGATRON_CHECK(!sealed_, prefix_, ": is sealed");
  write_index();
  bin_.sync();
  idx_.sync();
  sealed_ = true;
}

void IndexedDatasetWriter::publish() {
  MEGATRON_CHECK(sealed_, prefix_, ": is not sealed");
  // The index goes first and comes last: whoever sees one finds its data.
  ::unlink(idx_.path().c_str());
  bin_.commit();
  idx_.commit();
  sync_folder_of(idx_.path());
}

}  // namespace megatron::data
