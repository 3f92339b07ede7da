// Cosines and sines of rotary position embedding (arXiv 2104.09864) for every position and pair, with Megatron-LM's
// options: percentage of the head that rotates, interpolation factor, Llama 3's frequency scaling.
#pragma once

#include <vector>

#include "kernels/executor.h"
#include "spec/model_spec.h"

namespace megatron::nn {

struct RopeTable {
  Tensor cos, sin;  // [positions, pairs]
  bool interleaved = false;
};

/// base^(−2i/d) for the pairs of the rotating part d = head size·percent, after Llama 3's scaling if asked for:
/// wavelengths beyond original/low are stretched by `factor`, those below original/high stay, the rest is mixed
/// linearly.
std::vector<double> rope_frequencies(const spec::ModelSpec& model);

/// Angles position / interpolation factor · frequency, in double, rounded once to `dtype`. Covers the model's
/// positions.
RopeTable make_rope_table(tensor::Allocator& allocator, const spec::ModelSpec& model, DType dtype);

}  // namespace megatron::nn
