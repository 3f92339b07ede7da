#include "tensor/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/units.h"
#include "tensor/tensor.h"

namespace megatron::tensor {
namespace {

bool all_zero(const Storage& storage) {
  return std::all_of(storage.data(), storage.data() + storage.bytes(), [](std::byte b) { return b == std::byte{0}; });
}

TEST(Allocator, ZeroedBlocksAreZeroAlsoWhenTheyWereUsedBefore) {
  const auto allocator = Allocator::create(Device::cpu);
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{1000}, 2 * kMiB - 1, 2 * kMiB, 5 * kMiB + 12}) {
    auto used = allocator->allocate_zeroed(bytes, MemoryKind::parameter);
    EXPECT_TRUE(all_zero(*used)) << bytes;
    std::memset(used->data(), 0xff, static_cast<std::size_t>(bytes));
    const std::byte* const address = used->data();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % 64, 0U);
    used.reset();
    const auto again = allocator->allocate_zeroed(bytes, MemoryKind::gradient);
    EXPECT_EQ(again->data(), address) << bytes;
    EXPECT_TRUE(all_zero(*again)) << bytes;
  }
}

TEST(Allocator, ALargeBlockServesRequestsUpToAnEighthLess) {
  const auto allocator = Allocator::create(Device::cpu);
  auto block = allocator->allocate(9 * kMiB, MemoryKind::activation);
  const std::byte* const address = block->data();
  block.reset();
  const auto much_less = allocator->allocate(4 * kMiB, MemoryKind::activation);
  EXPECT_NE(much_less->data(), address);
  const auto less = allocator->allocate(8 * kMiB, MemoryKind::activation);
  EXPECT_EQ(less->data(), address);
  EXPECT_EQ(less->bytes(), 8 * kMiB);
  EXPECT_EQ(allocator->tracker().live(MemoryKind::activation), 12 * kMiB);
}

TEST(Allocator, BlocksOfTheArenaNeverOverlap) {
  const auto allocator = Allocator::create(Device::cpu);
  std::vector<std::shared_ptr<Storage>> blocks;
  // Below and above what one mapping holds, and odd sizes at the borders between heap, arena and mappings.
  for (const std::int64_t bytes : {256 * kKiB - 1, 256 * kKiB, 3 * kMiB, 31 * kMiB, 40 * kMiB, 3 * kMiB + 1, 5 * kMiB,
                                   20 * kMiB, 9 * kMiB, 300 * kKiB})
    blocks.push_back(allocator->allocate_zeroed(bytes, MemoryKind::activation));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_TRUE(all_zero(*blocks[i])) << "block " << i;
    std::memset(blocks[i]->data(), static_cast<int>(i + 1), static_cast<std::size_t>(blocks[i]->bytes()));
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::byte* const data = blocks[i]->data();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0U);
    EXPECT_TRUE(std::all_of(data, data + blocks[i]->bytes(), [&](std::byte b) { return b == std::byte(i + 1); }))
        << "block " << i;
  }
}

TEST(Allocator, CountsBytesByKindOnMetaToo) {
  for (const Device device : {Device::cpu, Device::meta}) {
    const auto allocator = Allocator::create(device);
    {
      Tensor a = Tensor::zeros(*allocator, {3, 1000}, DType::float32, MemoryKind::activation);
      a.set_kind(MemoryKind::stash);
      EXPECT_EQ(allocator->tracker().live(MemoryKind::stash), 12000);
      EXPECT_EQ(allocator->tracker().live(MemoryKind::activation), 0);
      EXPECT_EQ(a.flat().shape(), (Shape{3000}));
    }
    EXPECT_EQ(allocator->tracker().live_total(), 0);
    EXPECT_EQ(allocator->tracker().peak_total(), 12000);
  }
}

TEST(Allocator, PeakOfPassesIsThatOfStashAndActivationsTogether) {
  const auto allocator = Allocator::create(Device::meta);
  MemoryTracker& tracker = allocator->tracker();
  const auto take = [&](std::int64_t bytes, MemoryKind kind) {
    return Tensor::empty(*allocator, {bytes}, DType::uint8, kind);
  };
  {
    Tensor stash = take(100, MemoryKind::stash);
    { const Tensor work = take(30, MemoryKind::activation); }
    const Tensor other = take(1000, MemoryKind::communication);
    stash.reset();
    const Tensor work = take(120, MemoryKind::activation);
  }
  EXPECT_EQ(tracker.peak_of_passes(), 130);  // not 100 + 120, which were never there together
  const Tensor kept = take(20, MemoryKind::stash);
  tracker.restart_peaks();
  EXPECT_EQ(tracker.peak_of_passes(), 20);
  EXPECT_EQ(tracker.peak(MemoryKind::communication), 0);
  EXPECT_EQ(tracker.peak_total(), 20);
}

TEST(Allocator, MoreThanThereIsIsAnErrorThatNamesIt) {
  const auto allocator = Allocator::create(Device::cpu);
  EXPECT_THROW(allocator->allocate(std::int64_t{1} << 60, MemoryKind::optimizer), Error);
}

}  // namespace
}  // namespace megatron::tensor
