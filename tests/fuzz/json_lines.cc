#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "data/corpus.h"
#include "fuzz/promises.h"

namespace megatron::fuzz {
namespace {

using Documents = std::vector<std::optional<std::string>>;  // unset: a bad line

/// The string under "text" as a parser that builds a tree sees it. Not `known`: it has no place for such a number.
struct Reference {
  bool known = true;
  std::optional<std::string> text;
};

Reference reference(std::string_view line) {
  if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  // That parser takes a zero byte for the end, and another mark for a mark.
  if (line.find('\0') != std::string_view::npos || line.starts_with("\xef\xbb\xbf")) return {};
  try {
    const auto json = nlohmann::json::parse(line);
    if (!json.is_object() || !json.contains("text") || !json["text"].is_string()) return {};
    return {true, json["text"].get<std::string>()};
  } catch (const nlohmann::json::out_of_range&) {
    return {false, {}};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

std::optional<std::string> document(data::JsonStrings& reader, std::string_view line) {
  std::vector<std::string> strings;
  try {
    reader.read(line, strings);
  } catch (const data::BadLine& error) {
    const std::string_view what = error.what();
    promise(!what.empty() && what.find('\n') == std::string_view::npos && what.size() < 4000, "a reason: ", what);
    return std::nullopt;
  }
  promise(strings.size() == 1, "one key gave ", strings.size(), " strings");
  return strings[0];
}

Documents read(const std::string& path, std::size_t block_bytes, bool compare) {
  data::BlockReader reader({path}, block_bytes);
  data::JsonStrings strings({"text"});
  Documents documents;
  for (data::LineBlock block; reader.next(block);)
    data::for_each_line(block.text, [&](std::string_view line) {
      documents.push_back(document(strings, line));
      if (!compare) return;
      const auto [known, expected] = reference(line);
      if (!known) return;
      // Of several "text"s a tree keeps the last, while every one of them must be a string here.
      promise(!documents.back() || documents.back() == expected, "line ", documents.size(), " is read as '",
              documents.back().value_or(""), "'");
      promise(documents.back() || !expected || line.find("\"text\"") != line.rfind("\"text\"") ||
                  line.find('\\') != std::string_view::npos,
              "line ", documents.size(), " is refused");
    });
  return documents;
}

}  // namespace

Outcome json_lines(Bytes bytes) {
  const megatron::testing::TemporaryFolder folder;
  const std::string path = folder / "x.jsonl";
  write_bytes(path, as_text(bytes));
  const Documents whole = read(path, 1 << 16, /*compare=*/true);
  promise(read(path, 1 + bytes.size() % 13, /*compare=*/false) == whole, "documents depend on the blocks");
  for (const auto& text : whole)
    if (!text) return Outcome::refused;
  return Outcome::accepted;
}

}  // namespace megatron::fuzz
