#include "fuzz/promises.h"

namespace megatron::fuzz {
Outcome gpt2_merges(Bytes bytes) {
  const std::string_view text = as_text(bytes);
  const std::size_t zero = std::min(text.find('\0'), text.size());
  const megatron::testing::TemporaryFolder folder;
  write_bytes(folder / "vocab.json", text.substr(0, zero));
  write_bytes(folder / "merges.txt", text.substr(std::min(zero + 1, text.size())));
  try {
    const auto made = tokenizer::create_tokenizer(
        "GPT2BPETokenizer", {.vocab_file = folder / "vocab.json", .merge_file = folder / "merges.txt"});
    check_tokenizer(*made, text.substr(text.size() - std::min<std::size_t>(text.size(), 64)), /*exact=*/true);
  } catch (const Error& error) {
    check_refusal(error, folder.path());
    return Outcome::refused;
  }
  return Outcome::accepted;
}

}  // namespace megatron::fuzz
