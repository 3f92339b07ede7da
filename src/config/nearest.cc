#include "config/nearest.h"

#include <algorithm>

#include "base/check.h"

namespace megatron::config {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string normal(std::string_view name) {
  std::string out(name.substr(std::min(name.find_first_not_of('-'), name.size())));
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  const std::string wanted = normal(name);
  std::string best;
  std::size_t best_distance = std::string::npos;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(wanted, normal(candidate));
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best_distance <= std::max<std::size_t>(2, wanted.size() / 3) ? best : std::string();
}

std::string nearest_multiples(std::int64_t value, std::int64_t step) {
  if (step <= 0) return "";
  const std::int64_t below = value / step * step;
  return below > 0 && below != value ? str_cat(below, ", ", below + step) : str_cat(below + step);
}

std::string nearest_divisors(std::int64_t value, std::int64_t whole) {
  std::int64_t below = 0, above = 0;
  if (whole < 1 || whole > 100'000'000) return "";
  for (std::int64_t d = std::min(value - 1, whole); d >= 1 && below == 0; --d)
    if (whole % d == 0) below = d;
  for (std::int64_t d = std::max<std::int64_t>(value + 1, 1); d <= whole && above == 0; ++d)
    if (whole % d == 0) above = d;
  if (below == 0) return above == 0 ? "" : str_cat(above);
  return above == 0 ? str_cat(below) : str_cat(below, ", ", above);
}

}  // namespace megatron::config
