// What the fuzz entries share: a file with given bytes, refusals, and the promises of every tokenizer.
#pragma once

#include <string>
#include <string_view>

#include "base/check.h"
#include "fuzz/entries.h"
#include "support/temporary_folder.h"
#include "tokenizer/tokenizer.h"

namespace megatron::fuzz {

/// Throws BrokenPromise unless `holds`.
template <typename... Parts>
void promise(bool holds, const Parts&... what) {
  if (!holds) throw BrokenPromise(str_cat(what...));
}

std::string_view as_text(Bytes bytes);
void write_bytes(const std::string& path, std::string_view bytes);

/// A refusal is one line that names `path`.
void check_refusal(const Error& error, const std::string& path);

/// Encodes fixed texts and `own`: ids lie in the vocabulary, texts come back where `exact`, and giving ids out one by
/// one makes the same text as all at once without cutting a character. Other ids, made from `own`, decode alike.
void check_tokenizer(const tokenizer::Tokenizer& tokenizer, std::string_view own, bool exact);

}  // namespace megatron::fuzz
