// Megatron-LM's indexed data sets, byte for byte: PREFIX.bin holds the token ids of all sequences one after the other,
// PREFIX.idx their lengths, byte offsets and the documents they belong to.
//
// PREFIX.idx, little-endian, unpadded: 9 bytes "MMIDIDX\0\0" · u64 version 1 · u8 dtype code · u64 S sequences ·
// u64 D document boundaries · i32 lengths[S] in tokens · i64 offsets[S] in bytes of .bin · i64 boundaries[D] in
// sequence numbers (first 0, last S) · i8 modes[S] in multimodal files only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "data/output_file.h"
#include "data/sequence_source.h"

namespace megatron::data {

/// Codes as in the file.
enum class TokenType : std::uint8_t {
  uint8 = 1,
  int8 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  float64 = 6,
  float32 = 7,
  uint16 = 8
};
/// Bytes of one token.
std::int64_t token_type_size(TokenType type);
/// "uint16", …
std::string_view token_type_name(TokenType type);
/// float32 and float64 hold values that are no token ids: such files can be read, merged and looked at, not trained on.
bool is_float(TokenType type);
/// What PREFIX.idx says it holds, by its header alone. Throws IoError.
TokenType stored_token_type(const std::string& prefix);
/// What Megatron-LM writes for a vocabulary: uint16 below 65,500 ids, else int32.
TokenType optimal_token_type(std::optional<std::int64_t> vocab_size);

/// Reader: both files are mapped, nothing is copied; opening checks the whole index.
class IndexedDataset final : public SequenceSource {
 public:
  /// Throws IoError with path, offset, expected and found value when a file is missing, truncated, too long or damaged.
  explicit IndexedDataset(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  TokenType type() const { return type_; }
  std::int64_t num_sequences() const override { return num_sequences_; }
  std::int64_t num_documents() const { return num_boundaries_ - 1; }
  std::int64_t num_tokens() const { return bin_.size() / token_size_; }
  std::int64_t length(std::int64_t index) const override;
  /// Byte offset of a sequence in PREFIX.bin.
  std::int64_t offset(std::int64_t index) const;
  /// First sequence of document `index`; document_start(num_documents()) = num_sequences().
  std::int64_t document_start(std::int64_t index) const;
  bool has_modes() const { return has_modes_; }
  /// Mode byte of a sequence of a multimodal file.
  std::int8_t mode(std::int64_t index) const;

  void read(std::int64_t index, std::int64_t offset, std::int64_t count, std::int64_t* out) const override;
  /// Tokens from `offset` on, `count` of them or (unset) the rest. Throws Error when the range leaves the sequence.
  std::vector<std::int64_t> get(std::int64_t index, std::int64_t offset = 0,
                                std::optional<std::int64_t> count = {}) const;
  /// The same of a file that holds floats, which `read` and `get` refuse.
  std::vector<double> values(std::int64_t index, std::int64_t offset = 0, std::optional<std::int64_t> count = {}) const;

  /// The bytes of PREFIX.bin.
  std::span<const std::byte> bin_bytes() const { return bin_.bytes(); }

 private:
  const std::byte* part(std::int64_t index, std::int64_t offset, std::int64_t count) const;
  void check_header();
  void check_index() const;

  std::string prefix_;
  MappedFile idx_, bin_;
  TokenType type_ = TokenType::uint16;
  std::int64_t token_size_ = 2;
  std::int64_t num_sequences_ = 0, num_boundaries_ = 0;
  bool has_modes_ = false;
};

/// Byte offset of the sequence after one at `offset` with `length` tokens; 64-bit throughout.
std::int64_t next_sequence_offset(std::int64_t offset, std::int64_t length, TokenType type);

/// The first token id outside [0, vocab_size) of a data set, found by `num_threads` threads.
struct BadToken {
  std::int64_t sequence = 0, document = 0;
  std::int64_t position = 0;  // within the document
  std::int64_t id = 0;
};
/// Not for floats.
std::optional<BadToken> find_bad_token(const IndexedDataset& dataset, std::int64_t vocab_size, int num_threads);

/// Appends `tokens` to `out` in the file's form. Throws Error for an id that the type cannot hold.
void append_encoded(std::span<const std::int64_t> tokens, TokenType type, std::vector<std::byte>& out);

/// How far a data set has been written: what a writer needs to continue in the files of one that died.
struct WriterPosition {
  std::int64_t sequences = 0, tokens = 0;
  std::int64_t boundaries = 0;  // 0: nothing has been written
};

/// Writer: constant memory (lengths and boundaries wait in files of their own). All files have temporary names until
/// `finish`, which syncs them to disk and renames them; without it the destructor removes them.
class IndexedDatasetWriter {
 public:
  /// `multimodal`: a mode byte is kept for every sequence. `from`: continues there. Throws IoError when the files
  /// cannot be made, hold less than that or are written by another process.
  IndexedDatasetWriter(const std::string& prefix, TokenType type, bool multimodal = false,
                       const WriterPosition& from = {});
  ~IndexedDatasetWriter();
  IndexedDatasetWriter(const IndexedDatasetWriter&) = delete;
  IndexedDatasetWriter& operator=(const IndexedDatasetWriter&) = delete;

  /// Adds one sequence. Throws Error for an id that the token type cannot hold.
  void add_sequence(std::span<const std::int64_t> tokens, std::int8_t mode = 0);
  /// Adds one sequence of floats; float32 rounds them. Throws Error for a type of ids.
  void add_values(std::span<const double> values, std::int8_t mode = 0);
  /// Adds one sequence whose bytes are already in the file's form.
  void add_encoded_sequence(std::span<const std::byte> bytes, std::int8_t mode = 0);
  /// Ends the document that holds the sequences added since the last end.
  void end_document();
  /// Appends a whole data set of the same token type.
  void add_dataset(const IndexedDataset& other);
  /// Appends documents [first, last) of a data set of the same token type.
  void add_documents(const IndexedDataset& other, std::int64_t first, std::int64_t last);
  /// Syncs to disk what has been added and says where that ends.
  WriterPosition checkpoint();
  /// Whether the temporary files outlive the object.
  void keep(bool kept = true);
  /// Writes the index and syncs; nothing may be added afterwards. `publish` then renames.
  void seal();
  void publish();
  void finish() {
    seal();
    publish();
  }

  std::int64_t num_sequences() const { return num_sequences_; }
  std::int64_t num_tokens() const { return num_tokens_; }

 private:
  void write_index();
  void count_sequence(std::int64_t length, std::int8_t mode);

  std::string prefix_;
  TokenType type_;
  bool multimodal_;
  bool sealed_ = false;
  std::int64_t num_sequences_ = 0, num_tokens_ = 0, num_boundaries_ = 1;
  OutputFile bin_, idx_, lengths_, boundaries_, modes_;
  std::vector<std::byte> scratch_;
};

}  // namespace megatron::data
