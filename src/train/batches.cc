#include "train/batches.h"

#include <algorithm>
#include <utility>

namespace megatron::train {
namespace {

/// Rows of the samples that lie beyond the end: as they are, but with a loss mask of zeros.
void blank_samples(data::Batch& batch, std::int64_t first_blank) {
  std::fill(batch.loss_mask.begin() + first_blank * batch.seq_length, batch.loss_mask.end(), 0.0F);
}

data::Batch batch_with_end(const data::Dataset& dataset, const data::SampleOrder& order, std::int64_t first,
                           std::int64_t count, std::int64_t end) {
  const std::int64_t real = std::clamp<std::int64_t>(end - first, 0, count);
  if (real == count) return data::assemble_batch(dataset, order, first, count);
  // Samples beyond the end train nothing: any sample serves, and the first one always exists.
  const data::Batch batch = data::assemble_batch(dataset, order, 0, 1);
  data::Batch joined;
  joined.num_samples = count;
  joined.seq_length = batch.seq_length;
  joined.sequence_starts.push_back(0);
  for (std::int64_t i = 0; i < count; ++i) {
    const data::Batch one = i < real ? data::assemble_batch(dataset, order, first + i, 1) : batch;
    const std::int64_t rows = i * one.seq_length;
    joined.tokens.insert(joined.tokens.end(), one.tokens.begin(), one.tokens.end());
    joined.labels.insert(joined.labels.end(), one.labels.begin(), one.labels.end());
    joined.loss_mask.insert(joined.loss_mask.end(), one.loss_mask.begin(), one.loss_mask.end());
    joined.position_ids.insert(joined.position_ids.end(), one.position_ids.begin(), one.position_ids.end());
    joined.sample_index.insert(joined.sample_index.end(), one.sample_index.begin(), one.sample_index.end());
    joined.row_position.insert(joined.row_position.end(), one.row_position.begin(), one.row_position.end());
    for (std::size_t s = 1; s < one.sequence_starts.size(); ++s)
      joined.sequence_starts.push_back(rows + one.sequence_starts[s]);
  }
  blank_samples(joined, real);
  return joined;
}

}  // namespace

nn::MicroBatch to_micro_batch(data::Batch&& batch, std::int64_t index, const mesh::Mesh& mesh, bool sequence_parallel) {
  nn::MicroBatch micro;
  micro.index = index;
  micro.num_tokens = batch.num_samples * batch.seq_length;
  micro.ids = std::move(batch.tokens);
  micro.labels = std::move(batch.labels);
  micro.loss_mask = std::move(batch.loss_mask);
  micro.sequence_starts = std::move(batch.sequence_starts);
  micro.tokens.sample_index = std::move(batch.sample_index);
  micro.tokens.position = std::move(batch.position_ids);
  nn::set_token_shard(micro, sequence_parallel ? mesh.tp.rank() : 0, sequence_parallel ? mesh.tp.size() : 1);
  return micro;
}

std::vector<nn::MicroBatch> make_micro_batches(const data::Dataset& dataset, const data::SampleOrder& order,
                                               const StepSamples& step, const mesh::Mesh& mesh,
                                               bool sequence_parallel) {
  const std::int64_t per_round = step.micro_batch_size * mesh.dp.size();
  MEGATRON_CHECK_EQ(step.global_batch % per_round, 0, "global batch ", step.global_batch, " over micro-batches of ",
                    step.micro_batch_size, " on ", mesh.dp.size(), " data-parallel ranks");
  std::vector<nn::MicroBatch> batches;
  for (std::int64_t m = 0; m < step.global_batch / per_round; ++m) {
    const data::SampleRange range =
        data::micro_batch_range(step.first_sample, m, step.micro_batch_size, mesh.dp.rank(), mesh.dp.size());
    batches.push_back(to_micro_batch(batch_with_end(dataset, order, range.first, range.count, step.end_sample), m, mesh,
                                     sequence_parallel));
  }
  return batches;
}

}  // namespace megatron::train
