// How HuggingFace's tokenizer.json cuts text into the words that its model sees: its `pre_tokenizer` section, as a list
// of steps that change a text and split it. Immutable and shared by threads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_node.h"
#include "tokenizer/splitter.h"

namespace megatron::tokenizer {

class PreTokenizer {
 public:
  /// A JSON null: the whole text is one word. Known types: ByteLevel Whitespace WhitespaceSplit BertPreTokenizer
  /// Metaspace Split Punctuation Digits CharDelimiterSplit UnicodeScripts Sequence; everything else is refused by its
  /// name and place.
  explicit PreTokenizer(const JsonNode& node);

  using Visit = std::function<void(std::string_view text, const Splitter& words)>;
  /// Calls visit for the texts that the last step is about to split, in order. `at_start`: the text's first character
  /// is the first one of the whole input.
  void for_each(std::string_view text, bool at_start, const Visit& visit) const;

  /// True if the words that the last step splits are to be spelled byte by byte ("Ġ" for a space).
  bool ends_in_bytes() const { return !steps_.empty() && steps_.back().kind == Kind::bytes; }
  /// True if there is nothing to do at all.
  bool empty() const { return steps_.empty(); }

 private:
  enum class Kind { split, metaspace, bytes };
  enum class Prepend { never, first, always };
  struct Step {
    Kind kind = Kind::split;
    std::unique_ptr<Splitter> splitter;
    std::string replacement = {};      // metaspace
    Prepend prepend = Prepend::never;  // metaspace: the replacement; bytes: a space
  };

  void add(const JsonNode& node, int depth);
  void add_metaspace(const JsonNode& node);
  void add_bytes(const JsonNode& node);
  void add_split(const JsonNode& node);
  void add_regex(const std::string& regex, SplitBehavior behavior, bool invert = false);
  /// The text that the step splits: `text` itself or what `storage` then holds.
  static std::string_view prepare(const Step& step, std::string_view text, bool at_start, std::string& storage);
  void run(std::size_t index, std::string_view text, bool at_start, const Visit& visit) const;

  std::vector<Step> steps_;
  std::unique_ptr<Splitter> whole_;
};

}  // namespace megatron::tokenizer
