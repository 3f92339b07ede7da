// The `added_tokens` of a HuggingFace tokenizer.json: texts that become one id wherever they stand, before the model
// sees anything. Immutable and shared by threads.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/json_node.h"
#include "tokenizer/normalizers.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/vocabulary.h"

namespace megatron::tokenizer {

struct AddedToken {
  std::string content;
  std::string normalized_content;  // what is searched for in normalised text
  std::int64_t id = 0;
  bool special = false;                 // a control token
  bool single_word = false;             // only where no word character touches it
  bool lstrip = false, rstrip = false;  // white space before, behind it belongs to it
  bool normalized = false;              // searched for in normalised text
};

class AddedTokens {
 public:
  AddedTokens() = default;
  /// Refuses ids that contradict the model's vocabulary, with their place. `normalizer` may be null.
  AddedTokens(const JsonNode& node, const Vocabulary& vocabulary, const Normalizer* normalizer);

  /// Calls visit(begin, end, token) for the tokens found in `text` and for what lies between them (null), in order.
  /// Control tokens count only if `special`.
  using Visit = std::function<void(std::size_t begin, std::size_t end, const AddedToken* token)>;
  void split_raw(std::string_view text, bool special, const Visit& visit) const { split(text, raw_, special, visit); }
  void split_normalized(std::string_view text, bool special, const Visit& visit) const {
    split(text, normalized_, special, visit);
  }

  const std::vector<AddedToken>& tokens() const { return tokens_; }
  const AddedToken* find(std::int64_t id) const;
  const AddedToken* find(std::string_view content) const;

 private:
  struct Set {
    SpecialTokens texts;  // ids are places in tokens_
    bool only_special = true;
  };

  void add(const JsonNode& node, const Vocabulary& vocabulary, std::size_t entries, const Normalizer* normalizer);
  Set set_of(bool normalized) const;
  void split(std::string_view text, const Set& set, bool special, const Visit& visit) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::int64_t, std::size_t> by_id_;
  std::unordered_map<std::string, std::size_t> by_content_;
  Set raw_, normalized_;
};

}  // namespace megatron::tokenizer
