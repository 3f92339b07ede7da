#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
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

/// Takes the wanted strings out of a stream of parse events: no tree is built, depth costs no stack.
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
    error_ = str_cat("invalid JSON at byte ", position, ": ", clean(what));
    return false;
  }

  std::vector<std::string> take() {
    if (!error_.empty()) throw Error(error_);
    std::vector<std::string> strings;
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      if (!values_[i]) throw Error(missing(keys_[i]));
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
  bool fail(const std::string& reason) {
    error_ = reason;
    return false;
  }
  bool other(const char* kind) {
    if (depth_ == 0) return fail(str_cat("is ", kind, ", not a JSON object"));
    if (depth_ == 1 && wanted_)
      return fail(str_cat("the value of \"", keys_[*wanted_], "\" is ", kind, ", not a string"));
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
  std::string error_;
};

}  // namespace

std::vector<std::string> json_strings(std::string_view line, const std::vector<std::string>& keys) {
  // The parser would take a zero byte for the end of the line.
  if (const std::size_t zero = line.find('\0'); zero != std::string_view::npos)
    throw Error(str_cat("invalid JSON at byte ", zero + 1, ": zero byte"));
  Picker picker(keys);
  nlohmann::json::sax_parse(line.begin(), line.end(), &picker);
  return picker.take();
}

}  // namespace megatron::data
