#include "model/build.h"

#include <numeric>

#include "kernels/elementwise.h"
#include "kernels/initialize.h"
#include "model/transformer_stage.h"

namespace megatron::model {
namespace {

/// FNV-1a: the same number for the same name everywhere.
std::uint64_t name_hash(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

void fill_box(kernels::Executor& exec, const nn::Initializer& init, PhiloxKey key, const spec::Sharding& sharding,
              const spec::Box& box, TensorView w) {
  switch (init.kind) {
    case nn::Initializer::Kind::zeros:
      return kernels::fill_zero(exec, w);
    case nn::Initializer::Kind::ones:
      return kernels::fill_constant(exec, 1.0, w);
    case nn::Initializer::Kind::normal:
      return kernels::fill_normal(exec, key, init.scale, box.row, box.col, sharding.cols, w);
    case nn::Initializer::Kind::uniform:
      return kernels::fill_uniform(exec, key, init.scale, box.row, box.col, sharding.cols, w);
  }
}

void initialize(kernels::Executor& exec, const nn::Parameter& parameter, std::uint64_t seed, Tensor& values) {
  const spec::Sharding& sharding = parameter.sharding;
  const PhiloxKey key = make_philox_key(seed, RandomPurpose::initialization, name_hash(parameter.name));
  std::int64_t covered = 0;
  for (const spec::Piece& piece : sharding.pieces) covered += piece.global.rows;
  if (covered < sharding.local_rows) kernels::fill_zero(exec, values);
  for (const spec::Piece& piece : sharding.pieces)
    fill_box(exec, parameter.init, key, sharding, piece.global,
             values.slice(0, piece.local_row, piece.local_row + piece.global.rows));
}

}  // namespace

std::unique_ptr<Model> build_model(mesh::Rank& rank, const spec::RunSpec& run, std::optional<DType> dtype,
                                   bool values_elsewhere) {
  const mesh::Mesh& mesh = rank.mesh;
  const std::vector<std::int64_t>& layers = run.parallel.layers_per_stage;
  MEGATRON_CHECK_EQ(static_cast<int>(layers.size()), mesh.placement.num_stages(), "stages of the layer split");
  const nn::LayerSetup setup = {rank.exec.allocator(),
                                mesh.tp,
                                run.parallel.sequence_parallel && !mesh.tp.trivial(),
                                dtype.value_or(run.numerics.params_dtype),
                                dtype.value_or(run.numerics.residual_dtype()),
                                values_elsewhere ? tensor::Allocator::create(Device::meta) : nullptr};
  std::vector<std::unique_ptr<Stage>> chunks;
  nn::Parameter* table = nullptr;
  std::int64_t local_layers = 0;
  for (int chunk = 0; chunk < mesh.placement.num_chunks; ++chunk) {
    const int stage = mesh.placement.stage_of(mesh.pp.rank(), chunk);
    StageLayout layout;
    layout.first_layer = std::accumulate(layers.begin(), layers.begin() + stage, std::int64_t{0});
    layout.num_layers = layers[static_cast<std::size_t>(stage)];
    layout.first_local_layer = local_layers;
    layout.first = stage == 0;
    layout.last = stage == mesh.placement.num_stages() - 1;
    local_layers += layout.num_layers;
    auto built = std::make_unique<TransformerStage>(setup, run.model, layout, run.optimizer.apply_wd_to_qk_layernorm,
                                                    run.recompute, table);
    if (layout.first) table = built->shared_table();
    chunks.push_back(std::move(built));
  }
  return std::make_unique<Model>(mesh.placement, mesh.pp.rank(), std::move(chunks));
}

void initialize_parameters(mesh::Rank& rank, std::span<nn::Parameter* const> parameters, std::uint64_t seed,
                           const std::function<void(nn::Parameter&, const Tensor&)>& set_weights) {
  for (nn::Parameter* parameter : parameters) {
    if (nn::shares_table(*parameter, parameters)) continue;
    if (!is_16_bit_float(parameter->value.dtype()) && (rank.exec.is_meta() || !parameter->value.is_meta())) {
      initialize(rank.exec, *parameter, seed, parameter->value);
      continue;
    }
    MEGATRON_CHECK(set_weights != nullptr, "initial weights of ", parameter->name, " have nowhere to go");
    Tensor values = rank.exec.empty(parameter->value.shape(), DType::float32);
    initialize(rank.exec, *parameter, seed, values);
    set_weights(*parameter, values);
  }
}

}  // namespace megatron::model
