#include "train/step_profile.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/check.h"

namespace megatron::train {
namespace {

constexpr std::size_t kMaxRankLines = 16;

template <typename... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), pattern, values...);
  return text.data();
}

double limit_seconds_of_flops(const ProfileRow& row, const MachineLimits& limits) {
  return row.work.flops == 0 ? 0.0 : static_cast<double>(row.work.flops) / limits.matmul_flops_per_second;
}

double limit_seconds_of_bytes(const ProfileRow& row, const MachineLimits& limits) {
  return row.work.bytes == 0 ? 0.0 : static_cast<double>(row.work.bytes) / limits.copy_bytes_per_second;
}

bool measured(const MachineLimits& limits) {
  return limits.matmul_flops_per_second > 0 && limits.copy_bytes_per_second > 0;
}

std::string rate_text(const ProfileRow& row) {
  if (row.own_ns == 0) return "";
  const auto ns = static_cast<double>(row.own_ns);
  if (row.work.flops > 0) return format("%8.1f GFLOP/s", static_cast<double>(row.work.flops) / ns);
  if (row.work.bytes > 0) return format("%8.1f GB/s", static_cast<double>(row.work.bytes) / ns);
  return "";
}

std::string limit_text(const ProfileRow& row, const MachineLimits& limits) {
  const double share = share_of_limit(row, limits);
  if (share == 0.0) return "";
  return format("%4.0f %% of %s", 100.0 * share, bound_by_matmul(row, limits) ? "products" : "copy");
}

int order_of(const ProfileRow& row) {
  if (row.kind == SpanKind::kernel) return 0;
  return row.kind == SpanKind::post || row.kind == SpanKind::wait ? 1 : 2;
}

std::string rank_line(const RankProfile& rank, std::size_t number, double steps) {
  std::array<double, 3> sums{};
  for (const ProfileRow& row : rank.rows) sums[static_cast<std::size_t>(order_of(row))] += row.seconds();
  const double whole = 1e-9 * static_cast<double>(rank.step_ns);
  const auto percent = [&](double seconds) { return whole == 0 ? 0.0 : 100.0 * seconds / whole; };
  return format("   rank %zu: %.2f ms = kernels %.1f %% + communication %.1f %% + other %.1f %%\n", number,
                1e3 * whole / steps, percent(sums[0]), percent(sums[1]), percent(sums[2]));
}

}  // namespace

std::string ProfileRow::title() const {
  switch (kind) {
    case SpanKind::kernel:
      return name;
    case SpanKind::post:
    case SpanKind::wait:
      return str_cat(span_kind_name(kind), " ", name, " ", group);
    case SpanKind::phase:
      return "other in " + name;
    case SpanKind::step:
      return "other";
  }
  return name;
}

const char* ProfileRow::category() const {
  constexpr std::array<const char*, 3> kNames = {"kernel", "communication", "other"};
  return kNames[static_cast<std::size_t>(order_of(*this))];
}

double share_of_limit(const ProfileRow& row, const MachineLimits& limits) {
  if (!measured(limits) || row.own_ns == 0) return 0.0;
  return std::max(limit_seconds_of_flops(row, limits), limit_seconds_of_bytes(row, limits)) / row.seconds();
}

bool bound_by_matmul(const ProfileRow& row, const MachineLimits& limits) {
  return measured(limits) && limit_seconds_of_flops(row, limits) > limit_seconds_of_bytes(row, limits);
}

std::vector<ProfileRow> rows_of_all_ranks(const StepProfile& profile) {
  std::vector<ProfileRow> all;
  for (const RankProfile& rank : profile.ranks)
    for (const ProfileRow& row : rank.rows) {
      const auto same = std::find_if(all.begin(), all.end(), [&](const ProfileRow& other) {
        return other.kind == row.kind && other.name == row.name && other.group == row.group;
      });
      if (same == all.end()) {
        all.push_back(row);
        continue;
      }
      same->calls += row.calls;
      same->own_ns += row.own_ns;
      same->work.flops += row.work.flops;
      same->work.bytes += row.work.bytes;
    }
  std::stable_sort(all.begin(), all.end(), [](const ProfileRow& a, const ProfileRow& b) {
    return order_of(a) != order_of(b) ? order_of(a) < order_of(b) : a.own_ns > b.own_ns;
  });
  return all;
}

std::string profile_table(const StepProfile& profile) {
  const auto ranks = static_cast<double>(std::max<std::size_t>(1, profile.ranks.size()));
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, profile.num_steps));
  std::int64_t total_ns = 0;
  for (const RankProfile& rank : profile.ranks) total_ns += rank.step_ns;
  const auto whole = static_cast<double>(std::max<std::int64_t>(1, total_ns));
  std::string out = str_cat(" profile: ", profile.num_steps, profile.num_steps == 1 ? " step" : " steps",
                            " from iteration ", profile.first_iteration, ", mean of ", profile.ranks.size(),
                            profile.ranks.size() == 1 ? " rank\n" : " ranks\n");
  out += "     share        ms    calls  what                                  rate             of its limit\n";
  for (const ProfileRow& row : rows_of_all_ranks(profile)) {
    const std::string line =
        format("   %5.1f %% %9.3f %8.4g  %-32s %-18s", 100.0 * static_cast<double>(row.own_ns) / whole,
               1e3 * row.seconds() / ranks / steps, static_cast<double>(row.calls) / ranks / steps, row.title().c_str(),
               rate_text(row).c_str()) +
        limit_text(row, profile.limits);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  out += format("   100.0 %% %9.3f           step\n", 1e-6 * static_cast<double>(total_ns) / ranks / steps);
  if (measured(profile.limits))
    out += format("   limits of a rank: products %.1f GFLOP/s, copy %.1f GB/s (read and written)\n",
                  1e-9 * profile.limits.matmul_flops_per_second, 1e-9 * profile.limits.copy_bytes_per_second);
  for (std::size_t r = 0; r < profile.ranks.size() && profile.ranks.size() <= kMaxRankLines; ++r)
    out += rank_line(profile.ranks[r], r, steps);
  return out;
}

}  // namespace megatron::train
