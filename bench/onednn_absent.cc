// What `megatron bench matmul` compares with in a build without oneDNN: nothing.
#include "cli/library_matmul.h"

namespace megatron::cli {

std::vector<LibraryMatmul> library_matmuls(kernels::Executor&, const LibraryProblem&) { return {}; }

}  // namespace megatron::cli
