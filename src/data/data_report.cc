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

/// "1,234,567"
std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

/// One line of at most `longest` bytes, control bytes escaped, characters whole.
std::string one_line(const std::string& text, std::size_t longest) {
  std::string out;
  for (const char c : text) {
    if (out.size() >= longest && (static_cast<unsigned char>(c) & 0xc0U) != 0x80U) return out + "...";
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += '?';
    else
      out += c;
  }
  return out;
}

/// Documents, tokens, samples and passes of one split; "none" where it has no source.
std::string split_size(const std::vector<SourceReport>& sources, const char* split) {
  std::int64_t documents = 0, tokens = 0, samples = 0;
  double passed = 0.0;
  bool any = false;
  for (const SourceReport& source : sources) {
    if (source.split != split) continue;
    any = true;
    documents += source.documents;
    tokens += source.tokens;
    samples += source.samples;
    passed += source.epochs * static_cast<double>(source.tokens);
  }
  if (!any) return str_cat(split, " none");
  return str_cat(split, " ", grouped(documents), " documents, ", grouped(tokens), " tokens, ", grouped(samples),
                 " samples = ", fixed(passed / static_cast<double>(std::max<std::int64_t>(tokens, 1)), 2), " epochs");
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

std::string LengthHistogram::text() const {
  if (count == 0) return "none";
  std::string out = str_cat(grouped(shortest), " to ", grouped(longest), " tokens, mean ",
                            fixed(static_cast<double>(tokens) / static_cast<double>(count), 1));
  std::int64_t below = 0;
  const char* separator = "; ";
  for (std::size_t b = 0; b < buckets.size() && below < count; ++b) {
    below += buckets[b];
    if (buckets[b] == 0) continue;
    out += str_cat(separator, "<", b == 0 ? 1 : std::int64_t{1} << b, " ",
                   fixed(100.0 * static_cast<double>(below) / static_cast<double>(count), 0), "%");
    separator = ", ";
  }
  return out;
}

std::string DataReport::five_lines() const {
  constexpr std::size_t kShownSources = 8;
  std::string shares;
  std::size_t shown = 0, trained = 0;
  for (const SourceReport& source : sources) {
    if (source.split != "train") continue;
    ++trained;
    if (shown == kShownSources) continue;
    ++shown;
    shares += str_cat(shares.empty() ? "" : ", ", source.source, " ", fixed(100.0 * source.share, 1), "% (",
                      fixed(source.epochs, 2), " epochs)");
  }
  if (trained > shown) shares += str_cat(" and ", trained - shown, " more");
  std::string said;
  for (const std::string& note : notes) said += (said.empty() ? "" : "; ") + note;
  return str_cat("data: ", split_size(sources, "train"), "; ", split_size(sources, "valid"), "; ",
                 split_size(sources, "test"), "\nsources: ", shares.empty() ? "none" : shares,
                 "\ndocument lengths: ", lengths.text(), "\nfirst sample: ", one_line(first_sample, 160),
                 "\nnotes: ", said.empty() ? "none" : said);
}

}  // namespace megatron::data
