#include "data/split.h"

#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/text.h"

namespace megatron::data {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

std::vector<std::string_view> fields_of(std::string_view text) {
  const std::string_view separators = text.find_first_of(",/") != std::string_view::npos ? ",/" : kBlanks;
  std::vector<std::string_view> fields;
  for (std::string_view rest = trim(text);;) {
    const std::size_t end = rest.find_first_of(separators);
    fields.push_back(trim(rest.substr(0, end)));
    if (end == std::string_view::npos) return fields;
    rest = separators == kBlanks ? trim(rest.substr(end + 1)) : rest.substr(end + 1);
  }
}

double parse_field(std::string_view text, std::string_view field) {
  double value = 0.0;
  const bool plain = !field.empty() && field.find_first_not_of("0123456789.") == std::string_view::npos;
  const auto [stop, error] =
      std::from_chars(field.data(), field.data() + field.size(), value, std::chars_format::fixed);
  if (!plain || error != std::errc() || stop != field.data() + field.size())
    throw ConfigError(str_cat("--split \"", text, "\": field '", field, "' is not a plain number; example: 969,30,1"));
  return value;
}

}  // namespace

SplitMatrix parse_split(std::string_view text) {
  const std::vector<std::string_view> fields = fields_of(text);
  if (fields.size() > 3)
    throw ConfigError(str_cat("--split \"", text, "\": has ", fields.size(),
                              " fields; at most 3 (train, validation, test), field '", fields[3], "' is too many"));
  std::array<double, 3> shares{};
  double sum = 0.0;
  for (std::size_t i = 0; i < fields.size(); ++i) shares[i] = parse_field(text, fields[i]);
  for (const double share : shares) sum += share;
  if (!(sum > 0.0) || !std::isfinite(sum))
    throw ConfigError(str_cat("--split \"", text, "\": the sum of '", fields[0],
                              fields.size() > 1 ? str_cat("', '", fields[1]) : "",
                              fields.size() > 2 ? str_cat("', '", fields[2]) : "", "' must be positive and finite"));
  SplitMatrix matrix;
  double edge = 0.0;
  for (std::size_t i = 0; i < 3; ++i) {
    const double next = edge + shares[i] / sum;
    if (shares[i] / sum > 0.0) matrix[i] = SplitShare{edge, next};
    edge = next;
  }
  return matrix;
}

IndexRange split_range(const SplitShare& share, std::int64_t num_sequences) {
  // nearbyint rounds halves to even in the default mode, as Python's round does.
  const auto edge = [num_sequences](double at) {
    return static_cast<std::int64_t>(std::nearbyint(at * static_cast<double>(num_sequences)));
  };
  return {edge(share.begin), edge(share.end)};
}

}  // namespace megatron::data
