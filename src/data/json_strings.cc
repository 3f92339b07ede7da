#include <simdjson.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/corpus.h"

namespace megatron::data {
namespace {

constexpr std::size_t kLongestQuote = 100;

/// Printable ASCII of a message, cut to a line's length.
std::string clean(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kLongestQuote)) out += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > kLongestQuote ? out + "..." : out;
}

constexpr const char* kNotJson = "invalid JSON";
constexpr const char* kNotObject = "not a JSON object";
constexpr const char* kMissing = "missing key";
constexpr const char* kNotString = "value is not a string";

/// Takes the wanted strings out of a stream of parse events: no tree is built, depth costs no stack. It judges the
/// lines that the fast parser does not take, and says why they are bad.
class Picker : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Picker(const std::vector<std::string>& keys) : keys_(keys), values_(keys.size()) {}

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("a boolean"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a number"); }
  bool binary(binary_t&) override { return other("binary"); }
  bool string(string_t& value) override {
    if (depth_ == 1 && wanted_) {
      values_[*wanted_] = std::move(value);
      return true;
    }
    return other("a string");
  }
  bool key(string_t& name) override {
    if (depth_ != 1) return true;
    if (seen_.size() < 20) seen_.push_back(name);
    const auto found = std::find(keys_.begin(), keys_.end(), name);
    wanted_.reset();
    if (found != keys_.end()) wanted_ = static_cast<std::size_t>(found - keys_.begin());
    return true;
  }
  bool start_object(std::size_t) override { return open("an object", /*is_object=*/true); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open("an array", /*is_object=*/false); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
    std::string_view what = error.what();
    // Drop the library's own prefix up to its line and column.
    if (const std::size_t column = what.find("column "); column != std::string_view::npos)
      if (const std::size_t colon = what.find(": ", column); colon != std::string_view::npos)
        what = what.substr(colon + 2);
    return fail(kNotJson, str_cat("invalid JSON at byte ", position, ": ", clean(what)));
  }

  std::vector<std::string> take() {
    if (kind_ != nullptr) throw BadLine(kind_, error_);
    std::vector<std::string> strings;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (!values_[i]) throw BadLine(kMissing, missing(keys_[i]));
      strings.push_back(std::move(*values_[i]));
    }
    return strings;
  }

 private:
  std::string missing(const std::string& name) const {
    std::string text = str_cat("missing key \"", name, "\"; keys seen:");
    for (const std::string& key_name : seen_) text += str_cat(" \"", clean(key_name), "\"");
    return seen_.empty() ? text + " none" : text;
  }
  bool fail(const char* kind, const std::string& reason) {
    kind_ = kind;
    error_ = reason;
    return false;
  }
  bool other(const char* kind) {
    if (depth_ == 0) return fail(kNotObject, str_cat("is ", kind, ", not a JSON object"));
    if (depth_ == 1 && wanted_)
      return fail(kNotString, str_cat("the value of \"", keys_[*wanted_], "\" is ", kind, ", not a string"));
    return true;
  }
  bool open(const char* kind, bool is_object) {
    if (!(depth_ == 0 && is_object) && !other(kind)) return false;
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  const std::vector<std::string>& keys_;
  std::vector<std::optional<std::string>> values_;
  std::vector<std::string> seen_;
  std::optional<std::size_t> wanted_;
  std::size_t depth_ = 0;
  const char* kind_ = nullptr;
  std::string error_;
};

/// The number that JSON's grammar finds at the beginning of `text`; empty: none.
std::string_view leading_number(std::string_view text) {
  std::size_t at = text.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const std::size_t before = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return at > before;
  };
  const bool zero = at < text.size() && text[at] == '0';
  if (zero ? (++at, false) : !digits()) return {};
  std::size_t end = at;
  if (at < text.size() && text[at] == '.' && (++at, digits())) end = at;
  at = end;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (digits()) end = at;
  }
  return text.substr(0, end);
}

/// Overwrites digits, point and exponent of a number by 0, 10, 0.0, 0.00, …: as long, but small.
void make_small(std::string& text, std::size_t begin, std::size_t end) {
  for (std::size_t at = begin; at < end; ++at) text[at] = at == begin + 1 && end > begin + 2 ? '.' : '0';
  if (end == begin + 2) text[begin] = '1';
}

/// Numbers of the line, whose values nobody asks for, as small ones of the same length: the parser refuses large ones.
/// What is no number, as 1-2 or 1e2e3, does not become one: signs stay, and so does what a number must not end at.
std::string with_small_numbers(std::string_view line) {
  constexpr std::string_view kBehind = ",]} \t\r";
  std::string out(line);
  bool in_string = false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (in_string && out[i] == '\\') {
      ++i;
    } else if (out[i] == '"') {
      in_string = !in_string;
    } else if (const std::size_t size = in_string ? 0 : leading_number(std::string_view(out).substr(i)).size();
               size > 0) {
      const std::size_t end = i + size;
      if (end == out.size() || kBehind.find(out[end]) != std::string_view::npos)
        make_small(out, i + (out[i] == '-' ? 1 : 0), end);
      i = end - 1;
    }
  }
  return out;
}

std::vector<std::string> judge(std::string_view line, const std::vector<std::string>& keys) {
  // The parser would take a zero byte for the end of the line.
  if (const std::size_t zero = line.find('\0'); zero != std::string_view::npos)
    throw BadLine(kNotJson, str_cat("invalid JSON at byte ", zero + 1, ": zero byte"));
  const std::string small = with_small_numbers(line);
  Picker picker(keys);
  nlohmann::json::sax_parse(small, &picker);
  return picker.take();
}

}  // namespace

struct JsonStrings::Parser {
  simdjson::dom::parser parser;
  std::vector<bool> found;

  /// False where the line needs a judge: it is bad, nested beyond the parser's depth or has numbers beyond its range.
  bool read(std::string_view line, const std::vector<std::string>& keys, std::vector<std::string>& strings) {
    simdjson::dom::object object;
    if (parser.parse(line.data(), line.size()).get(object) != simdjson::SUCCESS) return false;
    strings.resize(keys.size());
    found.assign(keys.size(), false);
    for (const simdjson::dom::key_value_pair field : object) {
      for (std::size_t k = 0; k < keys.size(); ++k) {
        if (field.key != keys[k]) continue;
        std::string_view value;
        if (field.value.get(value) != simdjson::SUCCESS) return false;
        strings[k].assign(value);
        found[k] = true;
      }
    }
    return std::find(found.begin(), found.end(), false) == found.end();
  }
};

JsonStrings::JsonStrings(std::vector<std::string> keys) : keys_(std::move(keys)), parser_(std::make_unique<Parser>()) {}
JsonStrings::~JsonStrings() = default;

void JsonStrings::read(std::string_view line, std::vector<std::string>& strings) {
  // Files with a mark each may have been joined: a mark may stand before any line.
  if (line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  if (!parser_->read(line, keys_, strings)) strings = judge(line, keys_);
}

std::vector<std::string> json_strings(std::string_view line, const std::vector<std::string>& keys) {
  std::vector<std::string> strings;
  JsonStrings(keys).read(line, strings);
  return strings;
}

}  // namespace megatron::data
