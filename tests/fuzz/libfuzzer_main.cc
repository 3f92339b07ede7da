// One of the entries as libFuzzer calls it; MEGATRON_FUZZ_ENTRY names it.
#include <cstddef>

#include "fuzz/entries.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  megatron::fuzz::MEGATRON_FUZZ_ENTRY({data, size});
  return 0;
}
