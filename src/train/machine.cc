#include "train/machine.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace megatron::train {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

int affinity_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max<long>(1, sysconf(_SC_NPROCESSORS_ONLN)));
}

/// Path of this process's group under `controller` ("" for version 2) in /proc/self/cgroup.
std::string control_group(const std::string& controller) {
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const std::size_t a = line.find(':'), b = line.find(':', a + 1);
    if (a == std::string::npos || b == std::string::npos) continue;
    const std::string names = "," + line.substr(a + 1, b - a - 1) + ",";
    if (controller.empty() ? b == a + 1 : names.find("," + controller + ",") != std::string::npos)
      return line.substr(b + 1);
  }
  return "/";
}

/// Smallest quota of the group and its parents, in cores; infinity without any.
double quota_cores() {
  double cores = HUGE_VAL;
  for (std::string group = control_group("");; group = std::filesystem::path(group).parent_path()) {
    std::istringstream line(first_line("/sys/fs/cgroup" + group + "/cpu.max"));
    std::string quota;
    double period = 0;
    if (line >> quota >> period && quota != "max" && period > 0) cores = std::min(cores, std::stod(quota) / period);
    if (group.empty() || group == "/") break;
  }
  for (std::string group = control_group("cpu");; group = std::filesystem::path(group).parent_path()) {
    const std::string folder = "/sys/fs/cgroup/cpu" + group;
    std::istringstream quota_line(first_line(folder + "/cpu.cfs_quota_us"));
    std::istringstream period_line(first_line(folder + "/cpu.cfs_period_us"));
    double quota = 0, period = 0;
    if (quota_line >> quota && period_line >> period && quota > 0 && period > 0)
      cores = std::min(cores, quota / period);
    if (group.empty() || group == "/") break;
  }
  return cores;
}

std::int64_t meminfo_bytes(const std::string& key) {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);)
    if (line.rfind(key + ":", 0) == 0) return std::stoll(line.substr(key.size() + 1)) * 1024;
  return 0;
}

}  // namespace

int usable_cores() {
  const double quota = quota_cores();
  const int cores = affinity_cores();
  return quota < cores ? std::max(1, static_cast<int>(quota)) : cores;
}

int threads_per_rank(int requested, int ranks_on_this_machine) {
  return requested > 0 ? requested : std::max(1, usable_cores() / std::max(1, ranks_on_this_machine));
}

int worker_spin(int threads, int ranks_on_this_machine) {
  return threads * ranks_on_this_machine <= usable_cores() ? 2000 : 0;
}

std::int64_t total_memory_bytes() { return meminfo_bytes("MemTotal"); }
std::int64_t total_swap_bytes() { return meminfo_bytes("SwapTotal"); }
std::int64_t available_memory_bytes() { return meminfo_bytes("MemAvailable"); }

std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

std::int64_t free_disk_bytes(const std::string& directory) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(directory, error);
  while (!path.empty() && path != path.root_path() && !std::filesystem::exists(path, error)) path = path.parent_path();
  struct statvfs info {};
  if (statvfs(path.c_str(), &info) != 0) return -1;
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

double seconds_since_process_start() {
  std::ifstream in("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return 0.0;
  std::istringstream fields(text.substr(end + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;  // the 22nd of all fields: start time in clock ticks
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double start = std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - start;
}

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos && colon + 2 <= line.size())
      return line.substr(colon + 2);
  }
  return "unknown";
}

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace megatron::train
