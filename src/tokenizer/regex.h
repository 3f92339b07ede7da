// Searching with a regular expression (PCRE2, compiled to machine code where it can), in the dialect that tokenizer
// files use. Immutable and shared by threads.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/splitter.h"

namespace megatron::tokenizer {

class Regex {
 public:
  /// Throws ConfigError with the expression, the position and the reason if it is not understood.
  explicit Regex(std::string_view expression);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  /// What one thread needs to search; made once per text.
  class Searcher {
   public:
    explicit Searcher(const Regex& regex);
    ~Searcher();
    Searcher(const Searcher&) = delete;
    Searcher& operator=(const Searcher&) = delete;

    /// The first match of `text` that begins at `from` or later and is not empty; what stands before `from` is seen by
    /// lookbehind. Throws Error when the search takes too long.
    std::optional<Piece> find(std::string_view text, std::size_t from);

   private:
    const Regex& regex_;
    void* data_;
  };

 private:
  std::string expression_;
  void* code_ = nullptr;
};

/// The expression in PCRE2's words: \s, \w, \h and their opposites as Oniguruma knows them.
std::string to_pcre(std::string_view expression);

}  // namespace megatron::tokenizer
