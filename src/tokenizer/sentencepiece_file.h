// What a SentencePiece .model file says: a protobuf message of pieces (field 1), the training's settings (2) and the
// normaliser's (3).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::tokenizer {

struct SentencePieceFile {
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  enum class Model { unigram = 1, bpe = 2, word = 3, character = 4 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };

  std::vector<Piece> pieces;  // by id
  Model model = Model::unigram;
  bool byte_fallback = false;
  bool space_is_suffix = false;  // "▁" ends words instead of beginning them
  std::string charsmap;          // table of replacements; empty: none
  bool add_dummy_prefix = true, remove_extra_spaces = true, escape_spaces = true;

  /// Throws ConfigError with `path` and the offset for what is no such file or ends early, which the library would take
  /// for a smaller model.
  static SentencePieceFile read(const std::string& path, std::string_view bytes);
};

}  // namespace megatron::tokenizer
