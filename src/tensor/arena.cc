#include "tensor/arena.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/units.h"

namespace megatron::tensor {
namespace {

constexpr std::int64_t kHugePage = 2 * kMiB;
/// Mappings grow with what is in use, within these bounds: few of them, and little address space beyond the need.
constexpr std::int64_t kLeastMapping = 32 * kMiB, kLargestMapping = 256 * kMiB;

}  // namespace

Arena::~Arena() {
  for (const Mapping& mapping : mappings_) ::munmap(mapping.data, static_cast<std::size_t>(mapping.size));
}

std::byte* Arena::cut(std::int64_t size) {
  if (size > left_) {
    const std::int64_t usual = std::clamp(mapped_, kLeastMapping, kLargestMapping);
    // A block that would take most of a mapping gets its own, and the rest of the current one stays in use.
    if (2 * size >= usual && left_ > 0) return map(size);
    const std::int64_t whole = std::max(size, usual);
    std::byte* const start = map(whole);
    if (start == nullptr) return nullptr;
    next_ = start;
    left_ = mappings_.back().size;
  }
  std::byte* const block = next_;
  next_ += size;
  left_ -= size;
  return block;
}

/// Zero pages from the border of a huge page on, in whole huge pages.
std::byte* Arena::map(std::int64_t size) {
  if (size > std::int64_t{1} << 56) return nullptr;
  size = round_up(size, kHugePage);
  const auto whole = static_cast<std::size_t>(size + kHugePage);
  void* const mapped = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<std::uintptr_t>(mapped);
  const auto skipped = static_cast<std::size_t>(-start % static_cast<std::uintptr_t>(kHugePage));
  auto* const block = static_cast<std::byte*>(mapped) + skipped;
  if (skipped > 0) ::munmap(mapped, skipped);
  ::munmap(block + size, whole - skipped - static_cast<std::size_t>(size));
  ::madvise(block, static_cast<std::size_t>(size), MADV_HUGEPAGE);
  mappings_.push_back({block, size});
  mapped_ += size;
  return block;
}

}  // namespace megatron::tensor
