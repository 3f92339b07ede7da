#include "data/tokenizer_stamp.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "data/output_file.h"

namespace megatron::data {
namespace {

using Json = nlohmann::ordered_json;

Json end_of(const tokenizer::Tokenizer& tokenizer) { return tokenizer.eod() ? Json(*tokenizer.eod()) : Json(nullptr); }

std::string describe(const std::string& type, const Json& vocab_size, const Json& eod, const std::string& hash) {
  return str_cat(type, " with ", vocab_size.dump(), " ids, end of document ", eod.is_null() ? "none" : eod.dump(),
                 ", hash ", hash.substr(0, 8));
}

}  // namespace

std::string stamp_path(const std::string& prefix) { return prefix + ".tokenizer.json"; }

std::string tokenizer_stamp(const tokenizer::Tokenizer& tokenizer, bool append_eod) {
  Json json;
  json["hash"] = tokenizer.identity_hash();
  json["type"] = tokenizer.type();
  json["vocab_size"] = tokenizer.vocab_size();
  json["eod"] = end_of(tokenizer);
  json["append_eod"] = append_eod;
  json["identity"] = Json::parse(tokenizer.identity_json());
  return json.dump(1) + "\n";
}

std::optional<std::string> read_stamp(const std::string& prefix) {
  std::ifstream in(stamp_path(prefix), std::ios::binary);
  if (!in) return {};
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

void write_stamp(const std::string& prefix, const std::string& text) {
  OutputFile file(stamp_path(prefix));
  file.write(std::as_bytes(std::span(text)));
  file.sync();
  file.commit();
}

void check_stamp(const std::string& prefix, const tokenizer::Tokenizer& tokenizer) {
  const std::optional<std::string> text = read_stamp(prefix);
  if (!text) return;
  std::string hash, type;
  Json vocab_size, eod;
  try {
    const Json json = Json::parse(*text);
    hash = json.at("hash").get<std::string>();
    type = json.at("type").get<std::string>();
    vocab_size = json.at("vocab_size");
    eod = json.at("eod");
  } catch (const nlohmann::json::exception& error) {
    throw IoError(str_cat(stamp_path(prefix), ": is damaged: ", error.what()));
  }
  const std::string hash_here = tokenizer.identity_hash();
  if (hash == hash_here) return;
  if (type == "NullTokenizer" && tokenizer.type() == type && eod == end_of(tokenizer)) return;
  throw ConfigError(
      str_cat("--tokenizer-type ", tokenizer.type(), ": ", prefix,
              " was made by another tokenizer: ", describe(type, vocab_size, eod, hash), "; now ",
              describe(std::string(tokenizer.type()), Json(tokenizer.vocab_size()), end_of(tokenizer), hash_here),
              "; if the ids are the same nevertheless, remove ", stamp_path(prefix)));
}

}  // namespace megatron::data
