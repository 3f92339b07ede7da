// PREFIX.tokenizer.json beside a data set: which tokenizer made it, so that training with another one is noticed.
#pragma once

#include <optional>
#include <string>

#include "data/indexed_dataset.h"
#include "tokenizer/tokenizer.h"

namespace megatron::data {

/// PREFIX.tokenizer.json
std::string stamp_path(const std::string& prefix);

/// The text of the file: "hash" (identity_hash), "type", "vocab_size", "eod", "append_eod", "identity".
std::string tokenizer_stamp(const tokenizer::Tokenizer& tokenizer, bool append_eod);

/// The text beside a data set; unset where there is none.
std::optional<std::string> read_stamp(const std::string& prefix);
/// Writes `text` beside a data set: temporary name, sync, rename. Throws IoError.
void write_stamp(const std::string& prefix, const std::string& text);

/// Gives a sealed data set and its stamp their names, the stamp first: who sees the data sees it. Without a stamp, one
/// of what stood there before is removed; if the data cannot be published, so is the new one.
void publish_with_stamp(IndexedDatasetWriter& writer, const std::string& prefix,
                        const std::optional<std::string>& text);

/// Throws ConfigError unless two data sets with stamps have the same tokenizer (by its hash, wherever its files are)
/// and ends of documents treated alike.
void check_same_stamp(const std::string& first, const std::string& other);

/// Throws ConfigError naming both tokenizers when the data set was made by another one. Null tokenizers, whose text is
/// ids, are equal if their ends of document are.
void check_stamp(const std::string& prefix, const tokenizer::Tokenizer& tokenizer);

}  // namespace megatron::data
