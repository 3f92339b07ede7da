// How the tensors of a Hugging Face model are made of ours: which rows of which tensor stand where, and turned or not.
// One table serves both directions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "interop/huggingface_config.h"

namespace megatron::interop {

/// Rows [row, row + rows) of our tensor are rows [foreign_row, …) of the foreign one.
struct RowRun {
  std::int64_t row = 0, foreign_row = 0, rows = 0;
};

/// What one foreign tensor contributes.
struct ForeignPart {
  std::string name;
  std::vector<std::int64_t> shape;  // as it stands in the file
  /// The file holds [in, out] (GPT-2's Conv1D): rows of ours are its columns.
  bool turned = false;
  std::vector<RowRun> runs;

  /// Rows and columns in our orientation [out, in]; 1-D tensors have one column.
  std::int64_t rows() const { return shape.size() == 2 && turned ? shape[1] : shape[0]; }
  std::int64_t cols() const { return shape.size() == 1 ? 1 : turned ? shape[0] : shape[1]; }
};

struct TensorMapping {
  std::string name;  // Megatron Core's
  int num_dims = 2;
  std::int64_t rows = 0, cols = 1;
  std::vector<ForeignPart> parts;
};

/// All logical tensors of the model, embedding first, head last. Each row of each tensor on both sides occurs exactly
/// once.
std::vector<TensorMapping> huggingface_mappings(const HuggingFaceConfig& config);

}  // namespace megatron::interop
