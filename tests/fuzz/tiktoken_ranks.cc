#include "fuzz/promises.h"

namespace megatron::fuzz {

Outcome tiktoken_ranks(Bytes bytes) {
  const std::string_view text = as_text(bytes);
  const megatron::testing::TemporaryFolder folder;
  const std::string path = folder / "x.tiktoken";
  write_bytes(path, text);
  constexpr const char* kPatterns[] = {"r50k", "cl100k", "o200k", "llama3", "qwen2", "v2"};
  try {
    const auto made = tokenizer::create_tokenizer(
        "TikTokenizer", {.tokenizer_model = path, .tiktoken_pattern = kPatterns[text.size() % std::size(kPatterns)]});
    check_tokenizer(*made, text.substr(text.size() - std::min<std::size_t>(text.size(), 64)), /*exact=*/true);
  } catch (const Error& error) {
    check_refusal(error, path);
    return Outcome::refused;
  }
  return Outcome::accepted;
}

}  // namespace megatron::fuzz
