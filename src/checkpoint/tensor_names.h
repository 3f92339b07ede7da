// Spellings of tensor names: what other layer specs of Megatron Core call the same tensor.
#pragma once

#include <string>
#include <vector>

namespace megatron::checkpoint {

/// `name` itself first, then the other spellings under which a file may hold it. Optimizer state
/// (`optimizer.exp_avg.<parameter>`) follows its parameter.
std::vector<std::string> spellings(const std::string& name);

/// True for the tensors that have one row per token of the vocabulary: the only ones whose file may hold padding rows.
bool has_vocabulary_rows(const std::string& name);

}  // namespace megatron::checkpoint
