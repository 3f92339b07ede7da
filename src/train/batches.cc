#include "train/batches.h"

#include <utility>

namespace megatron::train {
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
  micro.tokens.row_position = std::move(batch.row_position);
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
    batches.push_back(to_micro_batch(data::assemble_batch(dataset, order, range.first, range.count, step.end_sample), m,
                                     mesh, sequence_parallel));
  }
  return batches;
}

}  // namespace megatron::train
