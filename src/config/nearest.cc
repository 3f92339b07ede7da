#include "config/nearest.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace megatron::config {
namespace {

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
