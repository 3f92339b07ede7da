#include "nn/layer.h"

namespace megatron::nn {

Parameter make_parameter(const LayerSetup& setup, std::string name, const spec::Sharding& sharding, Initializer init,
                         GradReduction reduction) {
  Parameter parameter;
  parameter.name = std::move(name);
  parameter.sharding = sharding;
  parameter.init = init;
  parameter.grad_reduction = setup.tp.trivial() ? GradReduction::none : reduction;
  parameter.decay = sharding.num_dims > 1;
  const Shape shape =
      sharding.num_dims == 1 ? Shape{sharding.local_rows} : Shape{sharding.local_rows, sharding.local_cols};
  tensor::Allocator& allocator = setup.value_allocator != nullptr ? *setup.value_allocator : setup.allocator;
  parameter.value = Tensor::empty(allocator, shape, setup.dtype, MemoryKind::parameter);
  return parameter;
}

bool token_sharded(const Pass& pass, const LayerSetup& setup) {
  const MicroBatch& batch = pass.batch;
  const std::int64_t held = batch.shard_end - batch.shard_begin;
  const bool sharded =
      setup.sequence_parallel && !setup.tp.trivial() && (pass.mode == Mode::train || pass.mode == Mode::evaluate);
  MEGATRON_CHECK_EQ(held * (sharded ? setup.tp.size() : 1), batch.num_tokens, "token shard of micro-batch ",
                    batch.index, " (see set_token_shard)");
  return sharded;
}

kernels::RowPositions local_rows(const Pass& pass) {
  const TokenMap& map = pass.batch.shard_tokens;
  return {map.sample_index.data(), map.place_in_sample().data()};
}

TensorView strided_view(TensorView base, std::int64_t offset, const Shape& shape, const Shape& strides) {
  TensorView view = base;
  if (view.pointer != nullptr) view.pointer = static_cast<std::byte*>(view.pointer) + offset * dtype_size(view.dtype);
  view.shape = shape;
  view.strides = strides;
  return view;
}

TokenMap TokenMap::slice(std::int64_t begin, std::int64_t end) const {
  if (sample_index.empty() && position.empty()) return {};
  MEGATRON_CHECK(0 <= begin && begin <= end && end <= static_cast<std::int64_t>(position.size()), "rows ", begin,
                 " to ", end, " of ", position.size());
  const auto cut = [&](const std::vector<std::int64_t>& values) {
    if (values.empty()) return values;
    return std::vector<std::int64_t>(values.begin() + begin, values.begin() + end);
  };
  return {cut(sample_index), cut(position), cut(row_position)};
}

void set_token_shard(MicroBatch& batch, int rank, int size) {
  MEGATRON_CHECK_EQ(batch.num_tokens % size, 0, "tokens ", batch.num_tokens, " of micro-batch ", batch.index,
                    " cut over ", size, " ranks");
  const std::int64_t rows = batch.num_tokens / size;
  batch.shard_begin = rank * rows;
  batch.shard_end = batch.shard_begin + rows;
  batch.shard_tokens = batch.tokens.slice(batch.shard_begin, batch.shard_end);
}

}  // namespace megatron::nn
