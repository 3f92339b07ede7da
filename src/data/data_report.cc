#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "data/build.h"

namespace megatron::data {
namespace {

std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::string fill(width > text.size() ? width - text.size() : 0, ' ');
  return left ? text + fill : fill + text;
}

}  // namespace

std::string DataReport::text() const {
  std::vector<std::vector<std::string>> rows = {
      {"split", "source", "documents", "tokens", "samples", "share", "epochs"}};
  for (const SourceReport& source : sources)
    rows.push_back({source.split, source.source, std::to_string(source.documents), std::to_string(source.tokens),
                    std::to_string(source.samples), fixed(100.0 * source.share, 1) + "%", fixed(source.epochs, 2)});
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  std::string out;
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) out += (c == 0 ? "" : "  ") + padded(row[c], widths[c], c < 2);
    out += '\n';
  }
  for (const std::string& note : notes) out += note + '\n';
  return out;
}

}  // namespace megatron::data
