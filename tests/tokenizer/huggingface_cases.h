// The tokenizers of data/huggingface_cases.json and the texts that go with them.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "support/temporary_folder.h"
#include "tokenizer/huggingface.h"
#include "tokenizer/unicode_text.h"

namespace megatron::tokenizer {

using Ids = std::vector<std::int64_t>;
using nlohmann::json;

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline const json& cases() {
  static const json all =
      json::parse(slurp(std::string(MEGATRON_SOURCE_DIR) + "/tests/tokenizer/data/huggingface_cases.json"));
  return all;
}

inline json model_of(const json& c) {
  json model = cases()["models"][c["model"].get<std::string>()];
  model.update(c["overrides"]);
  if (c["pairs"].get<bool>()) {
    for (json& merge : model["merges"]) {
      const std::string line = merge.get<std::string>();
      merge = {line.substr(0, line.find(' ')), line.substr(line.find(' ') + 1)};
    }
  }
  return model;
}

inline json file_of(const json& c) {
  json file = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"model", model_of(c)}};
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens"})
    file[part] = c[part];
  return file;
}

inline const json& case_named(const std::string& name) {
  for (const json& c : cases()["cases"])
    if (c["name"] == name) return c;
  throw Error("no case " + name);
}

inline std::unique_ptr<Tokenizer> load(const json& file) {
  const megatron::testing::TemporaryFolder folder;
  std::ofstream(folder / "tokenizer.json") << file.dump();
  return make_huggingface_tokenizer({.tokenizer_model = folder.path()});
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next(std::uint64_t bound) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return (state_ >> 33) % bound;
  }

 private:
  std::uint64_t state_;
};

inline std::string random_text(std::size_t index) {
  const json &pools = cases()["pools"], &words = cases()["words"];
  Random r(index);
  r.next(2);
  std::string out;
  for (std::uint64_t left = 1 + r.next(24); left > 0; --left) {
    if (r.next(3) == 0) {
      out += words[r.next(words.size())].get<std::string>();
    } else {
      const json& pool = pools[r.next(pools.size())];
      const auto first = pool[0].get<std::uint64_t>(), last = pool[1].get<std::uint64_t>();
      append_character(out, static_cast<char32_t>(first + r.next(last - first + 1)));
    }
  }
  return out;
}

}  // namespace megatron::tokenizer
