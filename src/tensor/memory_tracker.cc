#include "tensor/memory_tracker.h"

#include <algorithm>

namespace megatron::tensor {

std::string_view memory_kind_name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::parameter:
      return "parameters";
    case MemoryKind::main_parameter:
      return "main_parameters";
    case MemoryKind::gradient:
      return "gradients";
    case MemoryKind::optimizer:
      return "optimizer";
    case MemoryKind::stash:
      return "stash";
    case MemoryKind::activation:
      return "activations";
    case MemoryKind::communication:
      return "communication";
    case MemoryKind::scratch:
      return "scratch";
    case MemoryKind::data:
      return "data";
    case MemoryKind::count_:
      break;
  }
  return "?";
}

void MemoryTracker::add(MemoryKind kind, std::int64_t bytes) {
  const auto k = static_cast<std::size_t>(kind);
  live_[k] += bytes;
  live_total_ += bytes;
  peak_[k] = std::max(peak_[k], live_[k]);
  peak_of_passes_ = std::max(peak_of_passes_, live_of_passes());
  if (live_total_ > peak_total_) {
    peak_total_ = live_total_;
    at_peak_ = live_;
  }
}

void MemoryTracker::remove(MemoryKind kind, std::int64_t bytes) {
  live_[static_cast<std::size_t>(kind)] -= bytes;
  live_total_ -= bytes;
}

void MemoryTracker::restart_peaks() {
  peak_ = at_peak_ = live_;
  peak_total_ = live_total_;
  peak_of_passes_ = live_of_passes();
}

}  // namespace megatron::tensor
