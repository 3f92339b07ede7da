#include "config/option_table.h"

namespace megatron::config {

std::vector<Option> tokenizer_options() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(text_choice(
          "--tokenizer-type", [](Draft & d) -> auto& { return d.run.data.tokenizer_type; },
          {"ByteLevel", "NullTokenizer", "GPT2BPETokenizer", "TikTokenizer", "HuggingFaceTokenizer",
           "SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer"},
          "How text became tokens; ByteLevel is ours: bytes and an end mark.")
          .unbuilt_values({"BertWordPieceLowerCase", "BertWordPieceCase", "MultimodalTokenizer",
                           "NullMultimodalTokenizer", "SFTTokenizer"}));
  add(value(
      "--tokenizer-model", [](Draft & d) -> auto& { return d.run.data.tokenizer_model; },
      "tokenizer.json or its folder, .model or .tiktoken file."));
  add(value(
      "--vocab-file", [](Draft & d) -> auto& { return d.run.data.vocab_file; },
      "Vocabulary of GPT2BPETokenizer: vocab.json."));
  add(value(
      "--merge-file", [](Draft & d) -> auto& { return d.run.data.merge_file; },
      "Merges of GPT2BPETokenizer: merges.txt."));
  add(value(
          "--vocab-extra-ids", [](Draft & d) -> auto& { return d.run.data.vocab_extra_ids; },
          "Further entries behind the vocabulary of a SentencePiece model.")
          .at_least(0)
          .at_most(1e6));
  add(list(
          "--tokenizer-special-tokens", [](Draft & d) -> auto& { return d.run.data.tokenizer_special_tokens; },
          "Further markers of the tokenizer.")
          .alias("--tiktoken-special-tokens"));
  add(value(
      "--tiktoken-pattern", [](Draft & d) -> auto& { return d.run.data.tiktoken_pattern; },
      "How TikTokenizer cuts text: r50k, cl100k, o200k, llama3, qwen2, v1, v2 or a regular expression."));
  add(value(
          "--tiktoken-num-special-tokens", [](Draft & d) -> auto& { return d.run.data.tiktoken_num_special_tokens; },
          "Markers in front of the vocabulary of Megatron-LM's JSON files.")
          .at_least(0)
          .at_most(1e6));
  add(flag(
      "--tokenizer-sentencepiece-legacy", [](Draft & d) -> auto& { return d.run.data.tokenizer_sentencepiece_legacy; },
      "Markers of a SentencePiece model may be added."));
  add(off_flag(
          "--no-tokenizer-sentencepiece-ignore-extra-whitespaces", "tokenizer_sentencepiece_ignore_extra_whitespaces",
          [](Draft & d) -> auto& { return d.run.data.tokenizer_sentencepiece_ignore_extra_whitespaces; },
          "Keep runs of spaces that a SentencePiece model would squeeze.")
          .alias("--disable-tokenizer-sentencepiece-ignore-extra-whitespaces"));
  add(value(
      "--null-tokenizer-eod-id", [](Draft & d) -> auto& { return d.run.data.null_tokenizer_eod_id; },
      "End mark of NullTokenizer; unset: vocabulary - 1."));
  add(value(
      "--null-tokenizer-pad-id", [](Draft & d) -> auto& { return d.run.data.null_tokenizer_pad_id; },
      "Padding mark of NullTokenizer; unset: -1."));
  return rows;
}

}  // namespace megatron::config
