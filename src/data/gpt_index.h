// The three indices that turn token sequences into training samples of fixed length, exactly as Megatron-LM's
// GPTDataset builds them: document order, sample starts, sample order.
//
// All sequences of a split, repeated for as many epochs as the run needs and shuffled, are joined into one stream;
// sample k is tokens [k·L, (k+1)·L + x) of the stream, L = sequence length, x = 1 if a sample carries the label of its
// last token. The samples are then shuffled. Where the last epoch is used by less than 80 %, it is shuffled on its own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "data/index_array.h"
#include "data/split.h"

namespace megatron::data {

struct GptIndexConfig {
  std::int64_t seq_length = 0;              // L
  std::optional<std::int64_t> num_samples;  // wanted; unset: one epoch
  std::uint64_t seed = 1234;
  bool extra_token = true;        // x
  bool drop_last_partial = true;  // false: the last sample may be short (validation only)
};

/// Sizes that follow from the number of tokens alone.
struct GptIndexPlan {
  std::int64_t tokens_per_epoch = 0;
  std::int64_t num_epochs = 1;
  bool separate_last_epoch = false;
  std::int64_t samples_before_last_epoch = 0;  // only if num_epochs > 1
  std::int64_t num_samples = 0;                // that the stream yields
  std::int64_t num_documents = 0;              // entries of the document order
};

/// `num_sequences` of the split hold `tokens_per_epoch`. Throws ConfigError where Megatron-LM would loop for ever or
/// abort (no tokens), and where a product does not fit into 63 bits.
GptIndexPlan plan_gpt_index(const GptIndexConfig& config, std::int64_t num_sequences, std::int64_t tokens_per_epoch);

struct GptIndex {
  GptIndexPlan plan;
  IndexArray documents;        // [plan.num_documents] sequence numbers in stream order
  IndexArray sample_document;  // [plan.num_samples + 1] position in `documents` where a sample starts
  IndexArray sample_offset;    // [plan.num_samples + 1] and the token in that sequence
  IndexArray order;            // [plan.num_samples] sample i of the data set is sample order[i] of the stream
};

/// `range` = sequence numbers of the split, `length(sequence)` its tokens. Deterministic; one thread.
GptIndex build_gpt_index(const GptIndexConfig& config, const IndexRange& range,
                         const std::function<std::int64_t(std::int64_t)>& length);

}  // namespace megatron::data
