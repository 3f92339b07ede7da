// Address space of one rank from which large blocks are cut: few mappings, in huge pages where the system gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace megatron::tensor {

/// Blocks lie one behind the other, so that the end of one and the start of the next share a huge page. Not
/// thread-safe.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// `size` > 0 zero bytes that nobody has touched; `size` is a multiple of the alignment that is wanted, up to a page.
  /// Lives as long as the arena. Null where there is no memory.
  std::byte* cut(std::int64_t size);

 private:
  std::byte* map(std::int64_t size);

  struct Mapping {
    std::byte* data;
    std::int64_t size;
  };
  std::vector<Mapping> mappings_;
  std::int64_t mapped_ = 0;  // bytes of all mappings
  std::byte* next_ = nullptr;
  std::int64_t left_ = 0;  // bytes from next_ on
};

}  // namespace megatron::tensor
