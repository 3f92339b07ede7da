// The golden cases of Megatron Core models: configuration, inputs and reference values of one file.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "nn/pass.h"
#include "spec/model_spec.h"
#include "support/stage_fixture.h"

namespace megatron::testing {

struct GoldenCase {
  std::string name;
  spec::ModelSpec model;
};

/// All cases of a cases*.json whose names are in `names`, in that order. Throws where one is missing.
std::vector<GoldenCase> read_golden_cases(const std::string& path, const std::vector<std::string>& names);

/// in.* of the file as one micro-batch: sequences cut where positions start again.
nn::MicroBatch golden_batch(const checkpoint::SafetensorsFile& file);
/// Tensors whose name starts with `prefix`, under the rest of their names.
WholeTensors golden_tensors(const checkpoint::SafetensorsFile& file, const std::string& prefix);
/// [s, b, h] → rows of all tokens, sample-major.
std::vector<double> sample_major(const std::vector<double>& values, std::int64_t length, std::int64_t samples);

/// What a run of all ranks produced.
struct GoldenOutput {
  std::vector<double> losses;
  std::vector<double> logits;               // [T, vocabulary]
  std::vector<std::vector<double>> hidden;  // by layer: 0 = embedding
  WholeTensors gradients;                   // of Σ loss·mask ÷ Σ mask
};
GoldenOutput run_golden(const GoldenCase& golden, const spec::ParallelSpec& parallel, const WholeTensors& parameters,
                        const nn::MicroBatch& batch, DType dtype);

}  // namespace megatron::testing
