#include "tokenizer/trained_files.h"

#include <nlohmann/json.hpp>

#include "tokenizer/splitter.h"

namespace megatron::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json pre_tokenizer(std::string_view pattern) {
  if (pattern == named_pattern("gpt2")) return byte_level(true);
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level(false)})}};
}

Json vocabulary(const TrainedBpe& bpe) {
  Json vocab = Json::object();
  auto& entries = vocab.get_ref<Json::object_t&>();
  entries.reserve(bpe.tokens.size());
  // Tokens are unlike each other: no search for an equal key.
  for (std::size_t id = 0; id < bpe.tokens.size(); ++id) entries.emplace_back(bpe.tokens[id], id);
  return vocab;
}

const std::string& text_of(const TrainedBpe& bpe, std::int32_t id) { return bpe.tokens[static_cast<std::size_t>(id)]; }

}  // namespace

std::string tokenizer_json(const TrainedBpe& bpe, std::size_t num_special, std::string_view pattern) {
  Json added = Json::array();
  for (std::size_t id = 0; id < num_special; ++id)
    added.push_back({{"id", id},
                     {"content", bpe.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  Json merges = Json::array();
  for (const auto& [left, right] : bpe.merges) merges.push_back(Json::array({text_of(bpe, left), text_of(bpe, right)}));
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", false},
                      {"vocab", vocabulary(bpe)},
                      {"merges", std::move(merges)}};
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", std::move(added)},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", pre_tokenizer(pattern)},
                     {"post_processor", nullptr},
                     {"decoder", byte_level(true)},
                     {"model", model}};
  return file.dump(1) + "\n";
}

std::string vocab_json(const TrainedBpe& bpe) { return vocabulary(bpe).dump() + "\n"; }

std::string merges_txt(const TrainedBpe& bpe) {
  std::string text = "#version: 0.2\n";
  for (const auto& [left, right] : bpe.merges) text += text_of(bpe, left) + " " + text_of(bpe, right) + "\n";
  return text;
}

}  // namespace megatron::tokenizer
