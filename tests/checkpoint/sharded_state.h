// A small model's state laid over thread ranks: every element's value is a function of its logical place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "checkpoint/state_entry.h"
#include "comm/world.h"
#include "spec/sharding.h"
#include "tensor/allocator.h"

namespace megatron::checkpoint {

/// Replaces a file, without waiting for the disk.
inline void put(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

/// The value at (row, col) of the tensor `name`.
inline float value_at(const std::string& name, std::int64_t row, std::int64_t col) {
  std::uint32_t h = 2166136261U;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 16777619U;
  h = (h ^ static_cast<std::uint32_t>(row)) * 16777619U;
  h = (h ^ static_cast<std::uint32_t>(col)) * 16777619U;
  return static_cast<float>(static_cast<std::int32_t>(h)) * 0x1p-30F;
}

/// Writes or checks: calls f(local element, value) for all elements of the entry's pieces.
inline void each_element(StateEntry& entry, const std::function<void(float&, float)>& f) {
  const std::int64_t stride = entry.tensor.view().stride(0);
  float* const data = entry.tensor.data<float>();
  for (const spec::Piece& piece : entry.sharding.pieces)
    for (std::int64_t r = 0; r < piece.global.rows; ++r)
      for (std::int64_t c = 0; c < piece.global.cols; ++c)
        f(data[(piece.local_row + r) * stride + c], value_at(entry.name, piece.global.row + r, piece.global.col + c));
}

/// Tensor-parallel size × pipeline size × data-parallel size; rank = (pp · dp + d) · tp + t.
struct TestLayout {
  int tp = 1, pp = 1, dp = 1;
  int world() const { return tp * pp * dp; }
};

constexpr std::int64_t kHeads = 12, kHeadSize = 2, kHidden = 24, kFfn = 12, kVocabulary = 37;
constexpr int kLayers = 11;

/// What rank `rank` of the layout holds; tensors are filled with 7 everywhere.
inline std::vector<StateEntry> make_entries(tensor::Allocator& allocator, const TestLayout& layout, int rank) {
  const int t = rank % layout.tp, d = rank / layout.tp % layout.dp, p = rank / layout.tp / layout.dp;
  std::vector<StateEntry> entries;
  const auto add = [&](const std::string& name, const spec::Sharding& sharding, bool tied_copy = false) {
    for (const char* prefix : {"", "optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
      StateEntry entry{prefix + name, sharding, d == 0 && !tied_copy, {}};
      const Shape shape =
          sharding.num_dims == 1 ? Shape{sharding.local_rows} : Shape{sharding.local_rows, sharding.local_cols};
      entry.tensor = Tensor::empty(allocator, shape, DType::float32, MemoryKind::parameter);
      std::fill_n(entry.tensor.data<float>(), entry.tensor.numel(), 7.0F);
      entries.push_back(entry);
    }
  };
  const std::int64_t padded = (kVocabulary + 8 * layout.tp - 1) / (8 * layout.tp) * 8 * layout.tp;
  const auto table = spec::row_shard(2, kVocabulary, padded, kHidden, t, layout.tp);
  if (p == 0 || p == layout.pp - 1) add("embedding.word_embeddings.weight", table, p != 0);
  for (int layer = 0; layer < kLayers; ++layer) {
    if (layer * layout.pp / kLayers != p) continue;
    const std::string prefix = "decoder.layers." + std::to_string(layer) + ".";
    add(prefix + "input_layernorm.weight", spec::replicated(1, kHidden, 1, t));
    // Every second layer has one group, which the ranks share; the others have a group per head.
    const std::int64_t groups = layer % 2 == 0 ? 1 : kHeads;
    add(prefix + "self_attention.linear_qkv.weight",
        spec::qkv_shard(2, kHeads, groups, kHeadSize, kHidden, t, layout.tp));
    add(prefix + "self_attention.linear_qkv.bias", spec::qkv_shard(1, kHeads, groups, kHeadSize, 1, t, layout.tp));
    add(prefix + "self_attention.linear_proj.weight", spec::column_shard(kHidden, kHeads * kHeadSize, t, layout.tp));
    add(prefix + "mlp.linear_fc1.weight", spec::gated_shard(2, kFfn, kHidden, t, layout.tp));
  }
  return entries;
}

/// Runs f(world communicator, entries) on every rank of a local world.
inline void run_layout(const TestLayout& layout,
                       const std::function<void(comm::Communicator&, std::vector<StateEntry>&)>& f) {
  comm::WorldOptions options;
  options.world_size = layout.world();
  options.print_failure = false;
  const auto world = comm::create_local_world(options);
  world->run([&](comm::RankContext& context) {
    std::vector<int> members(static_cast<std::size_t>(context.world_size()));
    std::iota(members.begin(), members.end(), 0);
    const auto group = context.create_group("world", members);
    const auto allocator = tensor::Allocator::create(Device::cpu);
    std::vector<StateEntry> entries = make_entries(*allocator, layout, context.rank());
    f(*group, entries);
  });
}

inline void fill(std::vector<StateEntry>& entries) {
  for (StateEntry& entry : entries) each_element(entry, [](float& element, float value) { element = value; });
}

}  // namespace megatron::checkpoint
