// The layer patterns of --moe-layer-freq: see model_count.h.
#include "base/check.h"
#include "spec/model_count.h"

namespace megatron::spec {
namespace {

/// pattern := term ('+' term)*, term := factor ('*' number)*, factor := number | '[' number,… ']' | '(' pattern ')'.
class PatternReader {
 public:
  explicit PatternReader(const std::string& text) : text_(text) {}

  std::vector<char> read() {
    std::vector<char> layers = pattern();
    if (peek() != '\0') fail();
    return layers;
  }

 private:
  [[noreturn]] void fail() const {
    throw ConfigError(str_cat("layer pattern \"", text_, "\" is neither a number nor a list such as ([0]*3+[1]*58)"));
  }

  char peek() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  std::int64_t number() {
    std::int64_t value = 0;
    if (peek() < '0' || peek() > '9') fail();
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      value = value * 10 + (text_[at_] - '0');
      if (value > 1000000) fail();
    }
    return value;
  }

  std::vector<char> factor() {
    if (take('(')) {
      std::vector<char> inside = pattern();
      if (!take(')')) fail();
      return inside;
    }
    if (!take('[')) fail();
    std::vector<char> list;
    while (!take(']')) {
      list.push_back(number() != 0 ? 1 : 0);
      if (!take(',') && peek() != ']') fail();
    }
    return list;
  }

  std::vector<char> term() {
    std::vector<char> layers = factor();
    while (take('*')) {
      const std::vector<char> once = layers;
      const std::int64_t times = number();
      if (times * static_cast<std::int64_t>(once.size()) > 1000000) fail();
      layers.clear();
      for (std::int64_t i = 0; i < times; ++i) layers.insert(layers.end(), once.begin(), once.end());
    }
    return layers;
  }

  std::vector<char> pattern() {
    std::vector<char> layers = term();
    while (take('+')) {
      const std::vector<char> more = term();
      layers.insert(layers.end(), more.begin(), more.end());
    }
    return layers;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<char> parse_layer_pattern(const std::string& freq, std::int64_t num_layers) {
  const bool is_number = !freq.empty() && freq.size() < 10 && freq.find_first_not_of("0123456789") == std::string::npos;
  std::vector<char> layers;
  if (is_number) {
    const std::int64_t every = std::stoll(freq);
    if (every < 1) throw ConfigError("a layer frequency must be at least 1");
    for (std::int64_t i = 0; i < num_layers; ++i) layers.push_back(i % every == 0 ? 1 : 0);
    return layers;
  }
  layers = PatternReader(freq).read();
  if (static_cast<std::int64_t>(layers.size()) != num_layers)
    throw ConfigError(str_cat("layer pattern \"", freq, "\" has ", layers.size(), " layers, the model ", num_layers));
  return layers;
}

}  // namespace megatron::spec
