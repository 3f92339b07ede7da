// Entry points of the fuzzers: each takes any bytes as one of the files that users bring, and checks what is promised
// for files of that kind. The same functions run under libFuzzer (scripts/fuzz.sh) and in fuzz_test, which replays the
// seeds and thousands of mutations of them.
//
// An entry returns when the file was accepted and everything promised held, or when it was refused with one line of our
// own that names it; it throws BrokenPromise otherwise. Any other exception is a fault of the reader.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace megatron::fuzz {

using Bytes = std::span<const std::uint8_t>;

class BrokenPromise : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// What became of the bytes.
enum class Outcome { accepted, refused };

/// PREFIX.idx, then (after a u32 with its size) PREFIX.bin: what is accepted reads back within the .bin.
Outcome index_file(Bytes bytes);
/// tokenizer.json of Hugging Face: ids lie in the vocabulary, a stream of ids decodes as the whole does.
Outcome tokenizer_json(Bytes bytes);
/// A list of "base64 rank", or Megatron-LM's JSON list: any bytes come back from encoding and decoding.
Outcome tiktoken_ranks(Bytes bytes);
/// vocab.json, a zero byte, merges.txt: any bytes come back.
Outcome gpt2_merges(Bytes bytes);
/// JSON Lines: every line is a document as another parser reads it, or bad for it too; blocks may end anywhere.
Outcome json_lines(Bytes bytes);

}  // namespace megatron::fuzz
