#include "data/tokenizer_stamp.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "data/output_file.h"

namespace megatron::data {
namespace {

using Json = nlohmann::ordered_json;

Json end_of(const tokenizer::Tokenizer& tokenizer) { return tokenizer.eod() ? Json(*tokenizer.eod()) : Json(nullptr); }

struct Stamp {
  std::string type, hash;
  Json vocab_size, eod;
  bool append_eod = false;

  std::string describe() const {
    return str_cat(type, " with ", vocab_size.dump(), " ids, end of document ", eod.is_null() ? "none" : eod.dump(),
                   ", hash ", hash.substr(0, 8));
  }
};

std::optional<Stamp> parsed_stamp(const std::string& prefix) {
  const std::optional<std::string> text = read_stamp(prefix);
  if (!text) return {};
  try {
    const Json json = Json::parse(*text);
    return Stamp{json.at("type").get<std::string>(), json.at("hash").get<std::string>(), json.at("vocab_size"),
                 json.at("eod"), json.at("append_eod").get<bool>()};
  } catch (const nlohmann::json::exception& error) {
    throw IoError(str_cat(stamp_path(prefix), ": is damaged: ", error.what()));
  }
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

void write_stamp(const std::string& prefix, const std::string& text) { write_whole_file(stamp_path(prefix), text); }

void publish_with_stamp(IndexedDatasetWriter& writer, const std::string& prefix,
                        const std::optional<std::string>& text) {
  std::filesystem::remove(stamp_path(prefix));
  if (text) write_stamp(prefix, *text);
  try {
    writer.publish();
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(stamp_path(prefix), ignored);
    throw;
  }
}

void check_same_stamp(const std::string& first, const std::string& other) {
  const std::optional<Stamp> a = parsed_stamp(first), b = parsed_stamp(other);
  MEGATRON_CHECK(a && b, first, " or ", other, " has no stamp");
  if (a->hash != b->hash)
    throw ConfigError(
        str_cat(other, ": its tokenizer, ", b->describe(), ", is not that of ", first, ", ", a->describe()));
  if (a->append_eod != b->append_eod)
    throw ConfigError(str_cat(other, ": its documents have ", b->append_eod ? "an" : "no",
                              " end-of-document id, unlike those of ", first));
}

void check_stamp(const std::string& prefix, const tokenizer::Tokenizer& tokenizer) {
  const std::optional<Stamp> made = parsed_stamp(prefix);
  if (!made || made->hash == tokenizer.identity_hash()) return;
  if (made->type == "NullTokenizer" && tokenizer.type() == made->type && made->eod == end_of(tokenizer)) return;
  const Stamp own = {std::string(tokenizer.type()), tokenizer.identity_hash(), Json(tokenizer.vocab_size()),
                     end_of(tokenizer)};
  throw ConfigError(str_cat("--tokenizer-type ", tokenizer.type(), ": ", prefix,
                            " was made by another tokenizer: ", made->describe(), "; now ", own.describe(),
                            "; if the ids are the same nevertheless, remove ", stamp_path(prefix)));
}

}  // namespace megatron::data
