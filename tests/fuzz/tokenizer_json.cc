#include <nlohmann/json.hpp>

#include "fuzz/promises.h"

namespace megatron::fuzz {
namespace {

bool is_byte_level(const nlohmann::json& part) {
  return part.is_object() && part.value("type", nlohmann::json()) == "ByteLevel";
}

/// True for a file that changes no text: bytes are cut and merged, and nothing else is said.
bool keeps_texts(std::string_view text, const tokenizer::Tokenizer& tokenizer) {
  const auto file = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!file.is_object()) return false;
  const auto part = [&](const char* name) { return file.value(name, nlohmann::json()); };
  const nlohmann::json model = part("model"), cut = part("pre_tokenizer");
  if (!part("normalizer").is_null() || !is_byte_level(cut) || !is_byte_level(part("decoder"))) return false;
  if (cut.value("add_prefix_space", true) || model.value("type", "") != "BPE") return false;
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto found = model.find(affix); found != model.end() && found->is_string() && *found != "") return false;
  if (const auto added = part("added_tokens"); added.is_array() && !added.empty()) return false;
  // Every byte needs an id of its own.
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  return tokenizer.decode(tokenizer.encode(all)) == all;
}

}  // namespace

Outcome tokenizer_json(Bytes bytes) {
  const std::string_view text = as_text(bytes);
  const megatron::testing::TemporaryFolder folder;
  const std::string path = folder / "tokenizer.json";
  write_bytes(path, text);
  std::unique_ptr<tokenizer::Tokenizer> made;
  try {
    made = tokenizer::create_tokenizer("HuggingFaceTokenizer", {.tokenizer_model = path});
  } catch (const Error& error) {
    check_refusal(error, path);
    return Outcome::refused;
  }
  bool exact = false;
  try {
    exact = keeps_texts(text, *made);
  } catch (const Error&) {                      // A text was refused: nothing is promised.
  } catch (const nlohmann::json::exception&) {  // A null where a value is usual.
  }
  check_tokenizer(*made, text.substr(text.size() - std::min<std::size_t>(text.size(), 64)), exact);
  return Outcome::accepted;
}

}  // namespace megatron::fuzz
