#include "tensor/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/units.h"

namespace megatron::tensor {

namespace {
constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kHugePage = 2 * kMiB;

std::int64_t block_size(std::int64_t bytes) {
  // Size classes an eighth of a power of two apart: a freed block serves any later request of its class.
  std::int64_t size = std::max<std::int64_t>(round_up(bytes, kAlignment), kAlignment);
  std::int64_t step = kAlignment;
  while (step * 16 < size) step *= 2;
  return round_up(size, step);
}
}  // namespace

// Blocks that were freed, by size class. The same requests come every step, so after the first one nothing new is
// asked from the system.
struct Allocator::FreeLists {
  std::map<std::int64_t, std::vector<std::byte*>> blocks;
};

Allocator::Allocator(Device device) : device_(device), free_(std::make_unique<FreeLists>()) {}

std::shared_ptr<Allocator> Allocator::create(Device device) {
  return std::shared_ptr<Allocator>(new Allocator(device));
}

Allocator::~Allocator() {
  for (auto& [size, blocks] : free_->blocks)
    for (std::byte* block : blocks) std::free(block);
}

std::shared_ptr<Storage> Allocator::allocate(std::int64_t bytes, MemoryKind kind) {
  MEGATRON_CHECK_GE(bytes, 0);
  const std::int64_t size = block_size(bytes);
  std::byte* data = nullptr;
  if (device_ == Device::cpu) {
    auto& list = free_->blocks[size];
    if (!list.empty()) {
      data = list.back();
      list.pop_back();
    } else {
      const bool large = size >= kHugePage;
      const auto aligned = static_cast<std::size_t>(large ? round_up(size, kHugePage) : size);
      data = static_cast<std::byte*>(
          std::aligned_alloc(static_cast<std::size_t>(large ? kHugePage : kAlignment), aligned));
      if (data == nullptr)
        throw Error(str_cat("out of memory: ", format_bytes(bytes), " for ", memory_kind_name(kind), ", ",
                            format_bytes(tracker_.live_total()), " in use by this rank"));
      if (large) ::madvise(data, aligned, MADV_HUGEPAGE);
    }
  }
  tracker_.add(kind, bytes);
  return std::make_shared<Storage>(shared_from_this(), data, bytes, kind);
}

void Allocator::release(std::byte* data, std::int64_t bytes, MemoryKind kind) {
  tracker_.remove(kind, bytes);
  if (data != nullptr) free_->blocks[block_size(bytes)].push_back(data);
}

Storage::Storage(std::shared_ptr<Allocator> owner, std::byte* data, std::int64_t bytes, MemoryKind kind)
    : owner_(std::move(owner)), data_(data), bytes_(bytes), kind_(kind) {}

Storage::~Storage() { owner_->release(data_, bytes_, kind_); }

Device Storage::device() const { return owner_->device(); }

void Storage::set_kind(MemoryKind kind) {
  owner_->tracker().remove(kind_, bytes_);
  owner_->tracker().add(kind, bytes_);
  kind_ = kind;
}

}  // namespace megatron::tensor
