// Memory of one rank: 64-byte aligned blocks, counted by kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/device.h"
#include "tensor/memory_tracker.h"

namespace megatron::tensor {

class Allocator;

/// A block of bytes; returns to its allocator when the last tensor on it dies. A meta block has no data.
class Storage {
 public:
  Storage(std::shared_ptr<Allocator> owner, std::byte* data, std::int64_t bytes, MemoryKind kind);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  MemoryKind kind() const { return kind_; }
  Device device() const;
  /// Moves the block to another kind in the memory table (an activation that gets stashed, say).
  void set_kind(MemoryKind kind);

 private:
  std::shared_ptr<Allocator> owner_;
  std::byte* data_;
  std::int64_t bytes_;
  MemoryKind kind_;
};

/// Single-threaded by contract: only the rank's own thread allocates and frees. (Tensors posted to a collective are
/// kept alive by the owner's handle until the operation has completed.)
class Allocator : public std::enable_shared_from_this<Allocator> {
 public:
  static std::shared_ptr<Allocator> create(Device device);
  ~Allocator();

  Device device() const { return device_; }
  MemoryTracker& tracker() { return tracker_; }
  const MemoryTracker& tracker() const { return tracker_; }

  /// `bytes` ≥ 0, uninitialised, 64-byte aligned; large blocks ask for huge pages.
  std::shared_ptr<Storage> allocate(std::int64_t bytes, MemoryKind kind);

 private:
  friend class Storage;
  explicit Allocator(Device device);
  void release(std::byte* data, std::int64_t bytes, MemoryKind kind);

  struct FreeLists;
  Device device_;
  MemoryTracker tracker_;
  std::unique_ptr<FreeLists> free_;
};

}  // namespace megatron::tensor
