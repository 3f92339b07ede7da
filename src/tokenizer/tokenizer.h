// Text ↔ token ids: the interface of every tokenizer, and the factory that knows them by Megatron-LM's names.
// Tokenizers are immutable after construction: all ranks and threads of a process share one. Text is bytes, UTF-8 where
// a tokenizer knows characters; literal text never turns into a control token unless that is asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::tokenizer {

/// What stands around the tokens of a text. `model`: what the tokenizer's own file puts there.
enum class TextEnds { none, bos, eos, both, model };

struct EncodeOptions {
  /// Markers such as <|endoftext|> in the text become their ids; otherwise they are plain text.
  bool parse_special = false;
  TextEnds ends = TextEnds::none;
};

/// Ids that a tokenizer's file puts before and after every text.
struct EndMarks {
  std::vector<std::int64_t> before, after;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// The name that `create_tokenizer` takes.
  virtual std::string_view type() const = 0;
  /// Number of ids: every id is in [0, vocab_size).
  virtual std::int64_t vocab_size() const = 0;
  /// Id of "beginning of text", if this tokenizer has one.
  virtual std::optional<std::int64_t> bos() const { return std::nullopt; }
  /// Id of "end of document", if this tokenizer has one.
  virtual std::optional<std::int64_t> eod() const = 0;
  /// Id of the padding token; −1: none.
  virtual std::int64_t pad() const = 0;
  /// What TextEnds::model adds.
  virtual EndMarks model_ends() const { return {}; }

  /// Appends the ids of `text` to `ids`; markers are plain text. Time is at most n log n. Throws Error with a one-line
  /// reason for text it cannot take; `ids` may then hold a part.
  virtual void encode(std::string_view text, std::vector<std::int64_t>& ids) const = 0;
  /// The same, but markers become their ids. A tokenizer without markers encodes plain text.
  virtual void encode_special(std::string_view text, std::vector<std::int64_t>& ids) const { encode(text, ids); }
  /// The same with everything that can be asked for. Throws ConfigError for an end that the tokenizer does not have.
  void encode(std::string_view text, const EncodeOptions& options, std::vector<std::int64_t>& ids) const;

  /// The bytes of `ids`; each end of document becomes `eod_text`. Throws Error for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int64_t> ids, std::string_view eod_text = "") const = 0;
  /// False if a later id may change the text of earlier ones by more than their last characters.
  virtual bool streams() const { return true; }
  /// The bytes that one id stands for, markers by their name; for people to read, so not always what decode gives.
  /// Throws Error for an id outside the vocabulary.
  virtual std::string piece(std::int64_t id) const;

  /// One-line JSON from which `tokenizer_from_identity` makes an equal tokenizer. Equal `identity_hash` ⇒ equal ids for
  /// every text; paths of files stand in the JSON too, but are no part of the hash.
  virtual std::string identity_json() const = 0;
  /// 32 hexadecimal digits of identity_json without its "files" and, where it has a "content", of the files' content.
  std::string identity_hash() const;

  std::vector<std::int64_t> encode(std::string_view text) const {
    std::vector<std::int64_t> ids;
    encode(text, ids);
    return ids;
  }
};

/// Turns ids into text as they come; no UTF-8 character is ever split. `tokenizer` must outlive it.
/// The joined results equal the tokenizer's decode of all ids, for which a tokenizer that does not stream gives
/// everything at the end. An id costs the decoding of a few dozen ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// Text that became certain with `id`; often empty.
  std::string push(std::int64_t id);
  /// What is left: bytes that never became a character. Nothing is pushed afterwards.
  std::string finish();

 private:
  void forget(std::size_t text_size);

  const Tokenizer& tokenizer_;
  std::vector<std::int64_t> ids_;  // the last ids: as many as the text of the next ones may depend on
  std::size_t given_ = 0;          // bytes of their text that were given out
};

/// Where the files are and what is read from them; an empty string or list: not given.
struct TokenizerOptions {
  std::optional<std::int64_t> vocab_size = {};   // --vocab-size (NullTokenizer; TikTokenizer: at most so many ids)
  std::optional<std::int64_t> null_eod_id = {};  // --null-tokenizer-eod-id; unset: vocab_size − 1; negative: none
  std::optional<std::int64_t> null_pad_id = {};  // --null-tokenizer-pad-id; unset: −1 (none)
  std::string vocab_file = {};                   // --vocab-file (GPT2BPETokenizer: vocab.json)
  std::string merge_file = {};                   // --merge-file (GPT2BPETokenizer: merges.txt)
  std::string tokenizer_model = {};              // --tokenizer-model: file or folder
  std::string tiktoken_pattern = {};             // --tiktoken-pattern: a name or a regular expression
  std::optional<std::int64_t> tiktoken_num_special_tokens = {};  // --tiktoken-num-special-tokens
  std::vector<std::string> special_tokens = {};                  // --tokenizer-special-tokens
  std::int64_t vocab_extra_ids = 0;                              // --vocab-extra-ids
  bool sentencepiece_legacy = false;                             // --tokenizer-sentencepiece-legacy
  bool sentencepiece_keep_extra_whitespaces = false;  // --no-tokenizer-sentencepiece-ignore-extra-whitespaces
};

/// The names that `create_tokenizer` knows, for help and checks.
std::span<const std::string_view> tokenizer_types();

/// Makes the tokenizer that `--tokenizer-type` names. Throws ConfigError for the types of Megatron-LM that are not
/// built in this version, for unknown names (with the nearest known one), for options that do not fit and for files
/// that say something this version does not know (named with its place); IoError for files that cannot be read.
std::unique_ptr<Tokenizer> create_tokenizer(const std::string& type, const TokenizerOptions& options = {});

/// The tokenizer that wrote `identity`, from the files it names, or from those of `moved` that are given. Throws
/// ConfigError when the text is not such an identity or the files hold something else now; IoError naming the option
/// and the file that is missing.
std::unique_ptr<Tokenizer> tokenizer_from_identity(std::string_view identity, const TokenizerOptions& moved = {});

}  // namespace megatron::tokenizer
