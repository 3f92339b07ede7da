// Memory of one rank: 64-byte aligned blocks, counted by kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tensor/arena.h"
#include "tensor/device.h"
#include "tensor/memory_tracker.h"

namespace megatron::tensor {

class Allocator;

/// A block of bytes; returns to its allocator when the last tensor on it dies. A meta block has no data.
class Storage {
 public:
  Storage(std::shared_ptr<Allocator> owner, std::byte* data, std::int64_t bytes, std::int64_t capacity,
          MemoryKind kind);
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
  friend class Allocator;
  std::shared_ptr<Allocator> owner_;
  std::byte* data_;
  std::int64_t bytes_;
  std::int64_t capacity_;  // of the block, for its allocator
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

  /// `bytes` ≥ 0, uninitialised, 64-byte aligned. From 256 KiB on a block comes from the arena: pages become resident
  /// when they are first written, in huge pages where the system gives them, and a freed block serves a
  /// request if it is at most an eighth larger than that. Throws Error where there is no memory.
  std::shared_ptr<Storage> allocate(std::int64_t bytes, MemoryKind kind);
  /// The same, with every byte zero. A block new from the arena is not touched.
  std::shared_ptr<Storage> allocate_zeroed(std::int64_t bytes, MemoryKind kind);

 private:
  friend class Storage;
  explicit Allocator(Device device);

  struct Block {
    std::byte* data = nullptr;
    std::int64_t capacity = 0;
    bool fresh = false;  // zero pages that nobody has written
  };
  Block take_block(std::int64_t bytes);
  std::shared_ptr<Storage> make_storage(std::int64_t bytes, MemoryKind kind, bool zeroed);
  void release(const Storage& storage);

  /// Freed blocks by capacity. The same requests come every step, so after the first one nothing new is asked from the
  /// system.
  std::map<std::int64_t, std::vector<std::byte*>> free_blocks_;
  Arena arena_;
  Device device_;
  MemoryTracker tracker_;
};

}  // namespace megatron::tensor
