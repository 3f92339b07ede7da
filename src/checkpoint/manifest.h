// manifest.json of a checkpoint: which files there must be, how long, and the checksum of each tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace megatron::checkpoint {

struct Manifest {
  struct File {
    std::int64_t bytes = 0;
    std::string xxh3;  // of the header with its size field (safetensors), else of the whole file
  };
  struct Tensor {
    std::string file;
    std::string xxh3;  // of the tensor's bytes
  };
  std::int64_t iteration = 0;
  std::map<std::string, File> files;
  std::map<std::string, Tensor> tensors;
};

std::string manifest_to_json(const Manifest& manifest);
/// Throws IoError naming `path` and the damaged field.
Manifest manifest_from_json(const std::string& text, const std::string& path);

}  // namespace megatron::checkpoint
