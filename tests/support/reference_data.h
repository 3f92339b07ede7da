// Reference data made by other software: read when present, skipped and counted when not.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace megatron::testing {

/// MEGATRON_REFERENCE_DIR, else ../shared beside the checkout.
inline std::filesystem::path reference_dir() {
  if (const char* dir = std::getenv("MEGATRON_REFERENCE_DIR"); dir != nullptr && *dir != '\0') return dir;
  return std::filesystem::path(MEGATRON_REFERENCE_DEFAULT);
}

}  // namespace megatron::testing

/// Skips the running test, with a text that `make test` counts, unless the file or folder is there.
#define MEGATRON_REQUIRE_REFERENCE(path)                                                          \
  do {                                                                                            \
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no reference data: " << (path).string(); \
  } while (false)
