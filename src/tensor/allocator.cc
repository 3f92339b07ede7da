#include "tensor/allocator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace megatron::tensor {

namespace {

constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kPage = 4 * kKiB;
constexpr std::int64_t kLeastCut = 256 * kKiB;

/// Whether a block of this size comes from the arena, else it is the heap's.
bool is_cut(std::int64_t size) { return size >= kLeastCut; }

/// Small blocks: size classes an eighth of a power of two apart, so that a freed block serves any later request of its
/// class. Blocks of the arena: whole pages and no more, since what lies behind the request may stay unused for good.
std::int64_t block_size(std::int64_t bytes) {
  const std::int64_t size = std::max<std::int64_t>(round_up(bytes, kAlignment), kAlignment);
  std::int64_t step = kAlignment;
  while (step * 16 < size) step *= 2;
  const std::int64_t size_class = round_up(size, step);
  return is_cut(size_class) ? round_up(std::max(bytes, kLeastCut), kPage) : size_class;
}

/// Largest block that may serve a request for one of `size`.
std::int64_t largest_fit(std::int64_t size) { return is_cut(size) ? size + size / 8 : size; }

}  // namespace

Allocator::Allocator(Device device) : device_(device) {}

std::shared_ptr<Allocator> Allocator::create(Device device) {
  return std::shared_ptr<Allocator>(new Allocator(device));
}

Allocator::~Allocator() {
  for (auto& [capacity, blocks] : free_blocks_)
    for (std::byte* block : blocks)
      if (!is_cut(capacity)) std::free(block);
}

Allocator::Block Allocator::take_block(std::int64_t bytes) {
  const std::int64_t size = block_size(bytes), largest = largest_fit(size);
  const auto found = free_blocks_.lower_bound(size);
  if (found != free_blocks_.end() && found->first <= largest) {
    const Block block{found->second.back(), found->first, false};
    found->second.pop_back();
    if (found->second.empty()) free_blocks_.erase(found);
    return block;
  }
  const bool cut = is_cut(size);
  auto* const data = cut ? arena_.cut(size)
                         : static_cast<std::byte*>(std::aligned_alloc(static_cast<std::size_t>(kAlignment),
                                                                      static_cast<std::size_t>(size)));
  return {data, size, cut};
}

std::shared_ptr<Storage> Allocator::allocate(std::int64_t bytes, MemoryKind kind) {
  return make_storage(bytes, kind, false);
}

std::shared_ptr<Storage> Allocator::allocate_zeroed(std::int64_t bytes, MemoryKind kind) {
  return make_storage(bytes, kind, true);
}

std::shared_ptr<Storage> Allocator::make_storage(std::int64_t bytes, MemoryKind kind, bool zeroed) {
  MEGATRON_CHECK_GE(bytes, 0);
  Block block;
  if (device_ == Device::cpu) {
    block = take_block(bytes);
    if (block.data == nullptr)
      throw Error(str_cat("out of memory: ", format_bytes(bytes), " for ", memory_kind_name(kind), ", ",
                          format_bytes(tracker_.live_total()), " in use by this rank"));
    if (zeroed && !block.fresh) std::memset(block.data, 0, static_cast<std::size_t>(bytes));
  }
  tracker_.add(kind, bytes);
  return std::make_shared<Storage>(shared_from_this(), block.data, bytes, block.capacity, kind);
}

void Allocator::release(const Storage& storage) {
  tracker_.remove(storage.kind_, storage.bytes_);
  if (storage.data_ == nullptr) return;
  try {
    free_blocks_[storage.capacity_].push_back(storage.data_);
  } catch (const std::bad_alloc&) {  // memory has run out, and the block is not used again
  }
}

Storage::Storage(std::shared_ptr<Allocator> owner, std::byte* data, std::int64_t bytes, std::int64_t capacity,
                 MemoryKind kind)
    : owner_(std::move(owner)), data_(data), bytes_(bytes), capacity_(capacity), kind_(kind) {}

Storage::~Storage() { owner_->release(*this); }

Device Storage::device() const { return owner_->device(); }

void Storage::set_kind(MemoryKind kind) {
  owner_->tracker().remove(kind_, bytes_);
  owner_->tracker().add(kind, bytes_);
  kind_ = kind;
}

}  // namespace megatron::tensor
