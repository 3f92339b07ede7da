#include "config/text_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/check.h"

namespace megatron::config {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Without underscores between digits; nothing where an underscore stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

template <typename Number>
std::optional<Number> read_all(std::string_view text) {
  const auto plain = without_underscores(text);
  if (!plain) return std::nullopt;
  const char* first = plain->data();
  const char* last = first + plain->size();
  if (first != last && *first == '+') {
    ++first;
    if (first != last && *first == '-') return std::nullopt;
  }
  Number value{};
  const auto [end, error] = std::from_chars(first, last, value);
  if (error != std::errc() || end != last || first == last) return std::nullopt;
  return value;
}

}  // namespace

std::optional<std::int64_t> parse_integer(std::string_view text) { return read_all<std::int64_t>(text); }

std::optional<double> parse_real(std::string_view text) {
  const auto value = read_all<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<double> parse_magnitude(std::string_view text) {
  if (const auto value = read_all<double>(text)) return std::isfinite(*value) ? value : std::nullopt;
  const auto plain = without_underscores(text);
  // What from_chars calls out of range lies beyond the largest double or below the smallest.
  if (!plain || plain->find_first_not_of("+-.0123456789eE") != std::string::npos) return std::nullopt;
  double value{};
  const bool plus = plain->starts_with('+');
  const char* const first = plain->data() + (plus ? 1 : 0);
  const char* const last = plain->data() + plain->size();
  const auto [end, error] = std::from_chars(first, last, value);
  if (error != std::errc::result_out_of_range || end != last || (plus && first != last && *first == '-'))
    return std::nullopt;
  return std::strtod(plain->c_str(), nullptr);
}

std::string integer_problem(std::string_view text, std::int64_t least, std::int64_t most) {
  const auto value = parse_integer(text);
  const auto magnitude = value ? std::nullopt : parse_magnitude(text);
  if (!value && (!magnitude || text.find_first_of(".eE") != std::string_view::npos)) return "is not a whole number";
  if (value ? *value > most : *magnitude > 0) return str_cat("must be at most ", most, "; nearest: ", most);
  if (value ? *value < least : *magnitude < 0) return str_cat("must be at least ", least, "; nearest: ", least);
  return {};
}

std::string real_problem(std::string_view text) {
  if (parse_real(text)) return {};
  const auto magnitude = parse_magnitude(text);
  if (!magnitude) return "is not a number";
  if (std::isfinite(*magnitude)) return "is nearer to 0 than any number but 0; nearest: 0";
  const std::string most = format_real(std::numeric_limits<double>::max());
  return *magnitude > 0 ? str_cat("must be at most ", most, "; nearest: ", most)
                        : str_cat("must be at least -", most, "; nearest: -", most);
}

std::optional<bool> parse_truth(std::string_view text) {
  std::string lower;
  for (char c : text) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower == "true" || lower == "yes" || lower == "on") return true;
  if (lower == "false" || lower == "no" || lower == "off") return false;
  return std::nullopt;
}

bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; });
}

std::string format_real(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return std::to_string(static_cast<std::int64_t>(value));
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return error == std::errc() ? std::string(buffer, end) : std::string("?");
}

}  // namespace megatron::config
