// How many weights a model has, whatever its family: every weight, bias and norm gain, from the description alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/described_spec.h"
#include "spec/model_spec.h"

namespace megatron::spec {

/// 1 for each layer that holds experts. `freq` N: layers 0, N, 2N, …; or a list of 0 and 1 written with [..], +, *n.
/// Throws ConfigError where the text cannot be read or its length is not `num_layers`.
std::vector<char> parse_layer_pattern(const std::string& freq, std::int64_t num_layers);

struct ModelCount {
  std::int64_t total = 0;           // with the padded vocabulary, multi-token prediction included
  std::int64_t unpadded_vocab = 0;  // the same with the unpadded vocabulary
  std::int64_t multi_token_prediction = 0;
  std::int64_t embedding = 0;  // word and position embedding
  std::int64_t head = 0;       // output weights, 0 if tied
  std::int64_t final_norm = 0;
  std::vector<std::int64_t> layers;  // each decoder layer
};

/// `model` derived (ffn, head size, groups, vocabularies filled in). Formulas: docs of Megatron-LM's layers; routers
/// count, buffers such as the expert bias do not.
ModelCount count_parameters(const ModelSpec& model, const DescribedSpec& described = {});

/// Model FLOPs of one training step over `num_sequences` sequences: three times the forward matrix products, attention
/// halved by the causal mask, no recompute (Megatron-LM's formula).
double flops_per_step(const ModelSpec& model, std::int64_t num_sequences, const DescribedSpec& described = {});

}  // namespace megatron::spec
