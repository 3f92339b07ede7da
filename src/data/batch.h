// Micro-batches: which samples a data-parallel rank takes, and their tokens laid out for the model.
#pragma once

#include <cstdint>
#include <vector>

#include "data/dataset.h"
#include "data/samplers.h"

namespace megatron::data {

/// Legend: B samples of S tokens, T = B·S rows, sample-major (all rows of sample 0, then of sample 1).
struct Batch {
  std::int64_t num_samples = 0;            // B
  std::int64_t seq_length = 0;             // S
  std::vector<std::int64_t> tokens;        // [T]
  std::vector<std::int64_t> labels;        // [T]
  std::vector<float> loss_mask;            // [T]
  std::vector<std::int64_t> position_ids;  // [T] what position embeddings use (restarts with --reset-position-ids)
  std::vector<std::int64_t> sample_index;  // [T] global sample index of each row, the same under every layout
  std::vector<std::int64_t> row_position;  // [T] 0 … S−1 within the sample; never reset
  /// Sequences that see only themselves: row ranges [sequence_starts[i], sequence_starts[i + 1]), last entry T.
  std::vector<std::int64_t> sequence_starts;
};

/// Global sample indices [first, first + count) that rank `dp_rank` takes for micro-batch `micro_batch` of a step that
/// starts at `consumed_samples`: Megatron-LM's slices, [r·mbs, (r + 1)·mbs) of every mbs·dp consecutive indices.
struct SampleRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
SampleRange micro_batch_range(std::int64_t consumed_samples, std::int64_t micro_batch, std::int64_t micro_batch_size,
                              std::int64_t dp_rank, std::int64_t dp_size);

/// Samples with global indices [first, first + count), each looked up through `order`; those at or beyond `end` are
/// Dataset::filler. Throws Error naming index and size when the data end before.
Batch assemble_batch(const Dataset& dataset, const SampleOrder& order, std::int64_t first, std::int64_t count,
                     std::int64_t end = INT64_MAX);

}  // namespace megatron::data
