// Matrix products of a library, for `megatron bench matmul` to compare with; the training path has none.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/executor.h"

namespace megatron::cli {

/// c[m,n] = op(a)·op(b) (+ c with `accumulate`), dense; a is [m,k], or [k,m] transposed; b is [k,n], or [n,k].
/// float32, bfloat16 or float16 operands; the result has their type, or float32.
struct LibraryProblem {
  std::int64_t m = 0, n = 0, k = 0;
  DType operands = DType::float32;
  const void* a = nullptr;
  bool transpose_a = false;
  const void* b = nullptr;
  bool transpose_b = false;
  DType result = DType::float32;
  void* c = nullptr;
  bool accumulate = false;
};

struct LibraryMatmul {
  std::string name;
  std::function<void()> run;  // the whole product, on as many threads as the executor has
};

/// The ways in which oneDNN computes this product: in float32 its sgemm on one slab of the result per thread, and where
/// nothing is accumulated its matmul primitive; in 16 bits the primitive, which can then add too. Empty where the build
/// or the machine has no oneDNN. The library is loaded by the first call, and its threads stay: measure what has
/// nothing to do with it before. Defined in bench/onednn.cc, or bench/onednn_absent.cc where the build has no oneDNN.
std::vector<LibraryMatmul> library_matmuls(kernels::Executor& exec, const LibraryProblem& problem);

}  // namespace megatron::cli
