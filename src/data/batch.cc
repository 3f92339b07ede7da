#include "data/batch.h"

#include "base/check.h"

namespace megatron::data {
namespace {

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

SampleRange micro_batch_range(std::int64_t consumed_samples, std::int64_t micro_batch, std::int64_t micro_batch_size,
                              std::int64_t dp_rank, std::int64_t dp_size) {
  return {consumed_samples + (micro_batch * dp_size + dp_rank) * micro_batch_size, micro_batch_size};
}

Batch assemble_batch(const Dataset& dataset, const SampleOrder& order, std::int64_t first, std::int64_t count,
                     std::int64_t end) {
  MEGATRON_CHECK(first >= 0 && count > 0, "samples [", first, ", ", first + count, ")");
  Batch batch;
  batch.num_samples = count;
  for (std::int64_t global = first; global < first + count; ++global) {
    const Sample sample = global < end ? dataset.get(order.dataset_index(global)) : dataset.filler();
    const auto begin = static_cast<std::int64_t>(batch.tokens.size());
    batch.seq_length = static_cast<std::int64_t>(sample.tokens.size());
    append(batch.tokens, sample.tokens);
    append(batch.labels, sample.labels);
    append(batch.loss_mask, sample.loss_mask);
    append(batch.position_ids, sample.position_ids);
    for (std::int64_t i = 0; i < batch.seq_length; ++i) {
      batch.sample_index.push_back(global);
      batch.row_position.push_back(i);
    }
    for (std::size_t s = 0; s + 1 < sample.sequence_starts.size(); ++s)
      batch.sequence_starts.push_back(begin + sample.sequence_starts[s]);
  }
  batch.sequence_starts.push_back(static_cast<std::int64_t>(batch.tokens.size()));
  return batch;
}

}  // namespace megatron::data
