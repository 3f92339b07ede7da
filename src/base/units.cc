#include "base/units.h"

#include <array>
#include <cstdio>

namespace megatron {

std::string format_bytes(std::int64_t bytes) {
  std::array<char, 32> text{};
  if (bytes < kKiB)
    std::snprintf(text.data(), text.size(), "%lld B", static_cast<long long>(bytes));
  else if (bytes < kMiB)
    std::snprintf(text.data(), text.size(), "%.2f KiB", static_cast<double>(bytes) / kKiB);
  else if (bytes < kGiB)
    std::snprintf(text.data(), text.size(), "%.2f MiB", static_cast<double>(bytes) / kMiB);
  else
    std::snprintf(text.data(), text.size(), "%.2f GiB", static_cast<double>(bytes) / kGiB);
  return text.data();
}

std::string format_duration(double seconds) {
  std::array<char, 32> text{};
  if (seconds < 60) {
    std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  } else {
    const auto whole = static_cast<long long>(seconds);
    std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return text.data();
}

}  // namespace megatron
