// megatron tokenize: texts to ids and back, one per line.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/argument_parser.h"
#include "cli/command.h"
#include "cli/tokenizer_arguments.h"
#include "data/corpus.h"
#include "tokenizer/char_classes.h"

namespace megatron::cli {
namespace {

constexpr const char* kHelp =
    R"(usage: megatron tokenize --input FILE [FILE ...] --tokenizer-type TYPE [options]

Prints one JSON array of ids per document. Nothing is added to the ids unless --text-ends asks for it.

  --input FILE [FILE ...]     "-" is standard input
  --input-format FORMAT       jsonl (default): one object per line; lines: one document per line;
                              hex-lines: the same, bytes as hexadecimal digits
  --json-key KEY              key of the text in jsonl (default: text)
  --decode                    the input is arrays of ids, the output texts in the input format
  --explain                   print [id, piece] pairs; bytes that are no characters as <E4>
)";

enum class Format { jsonl, lines, hex_lines };

struct Request {
  std::vector<std::string> inputs;
  std::string format = "jsonl", json_key = "text";
  bool decode = false, explain = false, help = false;
  TokenizerArguments tokenizer;
};

Format format_of(const std::string& name, std::vector<std::string>& errors) {
  if (name == "lines") return Format::lines;
  if (name == "hex-lines") return Format::hex_lines;
  if (name != "jsonl") errors.push_back(str_cat("--input-format ", name, ": must be jsonl, lines or hex-lines"));
  return Format::jsonl;
}

std::string from_hex(std::string_view digits) {
  std::string bytes;
  if (digits.size() % 2 != 0) throw Error("an odd number of hexadecimal digits");
  for (std::size_t i = 0; i < digits.size(); i += 2) {
    unsigned value = 0;
    const auto [stop, code] = std::from_chars(digits.data() + i, digits.data() + i + 2, value, 16);
    if (code != std::errc() || stop != digits.data() + i + 2)
      throw Error(str_cat("'", digits.substr(i, 2), "' is not two hexadecimal digits"));
    bytes += static_cast<char>(value);
  }
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (const char c : bytes) {
    digits += kDigits[static_cast<unsigned char>(c) >> 4];
    digits += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return digits;
}

/// Text for people: bytes that are part of no character become <E4>.
std::string readable(std::string_view bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint32_t code_point = 0;
    const std::size_t length = tokenizer::read_character(bytes, at, code_point);
    if (length > 0) {
      text += bytes.substr(at, length);
    } else {
      char code[5];
      std::snprintf(code, sizeof(code), "<%02X>", static_cast<unsigned char>(bytes[at]));
      text += code;
    }
    at += std::max<std::size_t>(length, 1);
  }
  return text;
}

std::vector<std::int64_t> ids_of(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  std::vector<std::int64_t> ids;
  if (!json.is_array()) throw Error("not a JSON array of ids");
  for (const auto& id : json) {
    if (!id.is_number_integer()) throw Error(str_cat(id.dump().substr(0, 40), " is not an id"));
    ids.push_back(id.get<std::int64_t>());
  }
  return ids;
}

class Conversion {
 public:
  Conversion(const Request& request, const tokenizer::Tokenizer& tokenizer, Format format,
             tokenizer::EncodeOptions options)
      : request_(request), tokenizer_(tokenizer), format_(format), options_(options) {
    if (tokenizer.eod()) eod_text_ = tokenizer.piece(*tokenizer.eod());
  }

  void line(std::string_view line) {
    if (request_.decode) return print(written(tokenizer_.decode(ids_of(line), eod_text_)));
    const bool blank = line.find_first_not_of(" \t") == std::string_view::npos;
    if (format_ == Format::jsonl && blank) return;
    ids_.clear();
    switch (format_) {
      case Format::jsonl:
        tokenizer_.encode(data::json_strings(line, {request_.json_key})[0], options_, ids_);
        break;
      case Format::lines:
        tokenizer_.encode(line, options_, ids_);
        break;
      case Format::hex_lines:
        tokenizer_.encode(from_hex(line), options_, ids_);
        break;
    }
    print(request_.explain ? explained() : joined());
  }

 private:
  static void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fputc('\n', stdout);
  }

  std::string written(const std::string& text) const {
    if (format_ == Format::hex_lines) return to_hex(text);
    if (format_ == Format::lines) {
      if (text.find('\n') != std::string::npos)
        throw Error("the text holds a line feed, so it is no line; use --input-format jsonl or hex-lines");
      return text;
    }
    const nlohmann::json json = {{request_.json_key, text}};
    try {
      return json.dump();
    } catch (const nlohmann::json::exception&) {
      throw Error("the text is not UTF-8, which JSON cannot hold; use --input-format hex-lines");
    }
  }

  std::string joined() const {
    std::string text = "[";
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (i > 0) text += ',';
      text += std::to_string(ids_[i]);
    }
    return text += ']';
  }

  std::string explained() const {
    nlohmann::json pairs = nlohmann::json::array();
    for (const std::int64_t id : ids_) pairs.push_back({id, readable(tokenizer_.piece(id))});
    return pairs.dump();
  }

  const Request& request_;
  const tokenizer::Tokenizer& tokenizer_;
  Format format_;
  tokenizer::EncodeOptions options_;
  std::string eod_text_;
  std::vector<std::int64_t> ids_;
};

void convert_all(const Request& request, Conversion& conversion) {
  data::BlockReader reader(request.inputs);
  data::LineBlock block;
  std::size_t file = 0;
  std::int64_t number = 0;
  while (reader.next(block)) {
    if (block.file != file) number = 0;
    file = block.file;
    data::for_each_line(block.text, [&](std::string_view line) {
      ++number;
      try {
        conversion.line(line);
      } catch (const std::exception& error) {
        throw IoError(str_cat(reader.path(file), ":", number, ": ", error.what()));
      }
    });
  }
}

}  // namespace

int run_tokenize(Arguments args) {
  Request request;
  ArgumentParser parser;
  parser.list("--input", request.inputs);
  parser.text("--input-format", request.format);
  parser.text("--json-key", request.json_key);
  parser.flag("--decode", request.decode);
  parser.flag("--explain", request.explain);
  parser.flag("--help", request.help);
  request.tokenizer.add_to(parser);
  std::vector<std::string> errors = parser.parse(args);
  if (request.help) {
    std::printf("%s%s\n", kHelp, tokenizer_arguments_help().c_str());
    return 0;
  }
  if (request.inputs.empty()) errors.emplace_back("--input: is required");
  const Format format = format_of(request.format, errors);
  for (const char* name : {"--explain", "--parse-special", "--text-ends"})
    if (request.decode && parser.given(name)) errors.push_back(str_cat(name, ": has no meaning with --decode"));
  const auto tokenizer = request.tokenizer.create(parser, errors);
  if (!errors.empty()) return refuse(errors);
  Conversion conversion(request, *tokenizer, format, request.tokenizer.encode_options());
  convert_all(request, conversion);
  return 0;
}

}  // namespace megatron::cli
