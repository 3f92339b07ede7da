#include "cli/tokenizer_arguments.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace megatron::cli {
namespace {

std::string known_types() {
  std::string names;
  for (const std::string_view name : tokenizer::tokenizer_types()) names += str_cat(names.empty() ? "" : ", ", name);
  return names;
}

constexpr std::pair<std::string_view, tokenizer::TextEnds> kTextEnds[] = {{"none", tokenizer::TextEnds::none},
                                                                          {"bos", tokenizer::TextEnds::bos},
                                                                          {"eos", tokenizer::TextEnds::eos},
                                                                          {"both", tokenizer::TextEnds::both},
                                                                          {"model", tokenizer::TextEnds::model}};

const auto* find_ends(std::string_view name) {
  return std::find_if(std::begin(kTextEnds), std::end(kTextEnds), [&](const auto& e) { return e.first == name; });
}

/// Which types read an option; the others do without, as in a run.
struct ReadBy {
  const char* name;
  std::string_view types;
};
constexpr std::string_view kSentencePiece = "SentencePieceTokenizer GPTSentencePieceTokenizer Llama2Tokenizer";
constexpr ReadBy kReadBy[] = {
    {"--vocab-size", "NullTokenizer TikTokenizer"},
    {"--vocab-file", "GPT2BPETokenizer"},
    {"--merge-file", "GPT2BPETokenizer"},
    {"--tokenizer-model",
     "HuggingFaceTokenizer TikTokenizer SentencePieceTokenizer GPTSentencePieceTokenizer Llama2Tokenizer"},
    {"--tiktoken-pattern", "TikTokenizer"},
    {"--tiktoken-num-special-tokens", "TikTokenizer"},
    {"--tokenizer-special-tokens",
     "GPT2BPETokenizer TikTokenizer SentencePieceTokenizer GPTSentencePieceTokenizer Llama2Tokenizer"},
    {"--vocab-extra-ids", kSentencePiece},
    {"--tokenizer-sentencepiece-legacy", kSentencePiece},
    {"--no-tokenizer-sentencepiece-ignore-extra-whitespaces", kSentencePiece},
};

}  // namespace

tokenizer::EncodeOptions TokenizerArguments::encode_options() const {
  return {parse_special, find_ends(text_ends)->second};
}

void TokenizerArguments::add_to(ArgumentParser& parser) {
  parser.text("--tokenizer-type", type);
  parser.integer("--vocab-size", options.vocab_size, 1);
  parser.integer("--null-tokenizer-eod-id", options.null_eod_id, -1);
  parser.integer("--null-tokenizer-pad-id", options.null_pad_id, -1);
  parser.text("--vocab-file", options.vocab_file);
  parser.text("--merge-file", options.merge_file);
  parser.text("--tokenizer-model", options.tokenizer_model);
  parser.text("--tiktoken-pattern", options.tiktoken_pattern);
  parser.integer("--tiktoken-num-special-tokens", options.tiktoken_num_special_tokens, 0);
  parser.list("--tokenizer-special-tokens", options.special_tokens);
  parser.list("--tiktoken-special-tokens", options.special_tokens);
  parser.integer("--vocab-extra-ids", options.vocab_extra_ids, 0);
  parser.flag("--tokenizer-sentencepiece-legacy", options.sentencepiece_legacy);
  parser.flag("--no-tokenizer-sentencepiece-ignore-extra-whitespaces", options.sentencepiece_keep_extra_whitespaces);
  parser.flag("--parse-special", parse_special);
  parser.text("--text-ends", text_ends);
  parser.refuse("--tokenizer-metadata", "not built in this version; give the tokenizer's own options");
}

std::unique_ptr<tokenizer::Tokenizer> TokenizerArguments::create(const ArgumentParser& parser,
                                                                 std::vector<std::string>& errors) const {
  if (type.empty()) {
    errors.push_back("--tokenizer-type: is required: " + known_types());
    return nullptr;
  }
  const std::size_t before = errors.size();
  for (const char* name : {"--null-tokenizer-eod-id", "--null-tokenizer-pad-id"})
    if (parser.given(name) && type != "NullTokenizer")
      errors.push_back(str_cat(name, ": needs --tokenizer-type NullTokenizer"));
  for (const ReadBy& option : kReadBy)
    if (parser.given(option.name) && option.types.find(type) == std::string_view::npos)
      std::fprintf(stderr, "notice: %s has no effect: --tokenizer-type %s does not read it\n", option.name,
                   type.c_str());
  if (find_ends(text_ends) == std::end(kTextEnds))
    errors.push_back(str_cat("--text-ends ", text_ends, ": must be none, bos, eos, both or model"));
  if (errors.size() > before) return nullptr;
  try {
    auto made = tokenizer::create_tokenizer(type, options);
    std::vector<std::int64_t> ends;
    made->encode("", encode_options(), ends);  // refuses ends that the tokenizer does not have
    return made;
  } catch (const ConfigError& error) {
    errors.emplace_back(error.what());
    return nullptr;
  }
}

std::string tokenizer_arguments_help() {
  return str_cat("  --tokenizer-type TYPE       ", known_types(),
                 R"(
  --tokenizer-model PATH      tokenizer.json or its folder, .model or .tiktoken file
  --vocab-file F --merge-file F   for GPT2BPETokenizer
  --tiktoken-pattern P        for TikTokenizer: name or regular expression; also --tiktoken-num-special-tokens N
  --tokenizer-special-tokens T [T ...]   further markers (also --tiktoken-special-tokens); also --vocab-extra-ids N
  --tokenizer-sentencepiece-legacy   a SentencePiece model may be given further markers
  --no-tokenizer-sentencepiece-ignore-extra-whitespaces   keep runs of spaces that such a model would squeeze
  --vocab-size N              for NullTokenizer and TikTokenizer
  --null-tokenizer-eod-id N   for NullTokenizer (default: vocabulary - 1; -1: none); also --null-tokenizer-pad-id
  --parse-special             markers such as <|endoftext|> in the text become their ids (default: plain text)
  --text-ends ENDS            ids around each text: none (default), bos, eos, both, or model (what the file puts there))");
}

}  // namespace megatron::cli
