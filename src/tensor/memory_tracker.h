// Counts live and peak bytes of one rank, by kind.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace megatron::tensor {

enum class MemoryKind : std::uint8_t {
  parameter,       // model weights
  main_parameter,  // float32 weights beside 16-bit ones
  gradient,        // main gradients
  optimizer,       // moments
  stash,           // kept between forward and backward; keys and values of earlier tokens
  activation,      // alive only within a pass
  communication,   // buffers of collectives and messages
  scratch,         // workspace of kernels
  data,            // tables that do not train: rotary cosines and sines
  count_
};

constexpr std::size_t kNumMemoryKinds = static_cast<std::size_t>(MemoryKind::count_);
std::string_view memory_kind_name(MemoryKind kind);

/// Not thread-safe: a tracker belongs to one rank, and only its rank thread allocates.
class MemoryTracker {
 public:
  void add(MemoryKind kind, std::int64_t bytes);
  void remove(MemoryKind kind, std::int64_t bytes);

  std::int64_t live(MemoryKind kind) const { return live_[static_cast<std::size_t>(kind)]; }
  std::int64_t peak(MemoryKind kind) const { return peak_[static_cast<std::size_t>(kind)]; }
  std::int64_t live_total() const { return live_total_; }
  /// Largest total that was alive at one time, and what each kind held at that moment.
  std::int64_t peak_total() const { return peak_total_; }
  std::int64_t at_peak(MemoryKind kind) const { return at_peak_[static_cast<std::size_t>(kind)]; }
  /// Largest sum of stash and activations at one time: what goes through passes.
  std::int64_t peak_of_passes() const { return peak_of_passes_; }
  /// All peaks count from now on.
  void restart_peaks();

 private:
  std::int64_t live_of_passes() const { return live(MemoryKind::stash) + live(MemoryKind::activation); }

  std::array<std::int64_t, kNumMemoryKinds> live_{}, peak_{}, at_peak_{};
  std::int64_t live_total_ = 0, peak_total_ = 0, peak_of_passes_ = 0;
};

}  // namespace megatron::tensor
