// Where the virtual stages of a pipeline stand: each rank holds `num_chunks` of them. Stages count in the order in
// which a micro-batch passes them.
#pragma once

#include <cstdint>

namespace megatron::spec {

enum class PlacementKind : std::uint8_t {
  linear,  // stage s on rank s mod p, chunk s ÷ p: Megatron-LM's (arXiv 2104.04473 §2.2)
  v,       // two chunks: stage s < p on rank s, stage p + i on rank p − 1 − i, so both ends are on rank 0 (arXiv
           // 2405.15362)
};

struct StagePlacement {
  int num_ranks = 1;
  int num_chunks = 1;  // 2 with PlacementKind::v
  PlacementKind kind = PlacementKind::linear;

  int num_stages() const { return num_ranks * num_chunks; }
  int rank_of(int stage) const {
    const int place = stage % num_ranks;
    return kind == PlacementKind::v && stage >= num_ranks ? num_ranks - 1 - place : place;
  }
  int chunk_of(int stage) const { return stage / num_ranks; }
  int stage_of(int rank, int chunk) const {
    return chunk * num_ranks + (kind == PlacementKind::v && chunk == 1 ? num_ranks - 1 - rank : rank);
  }
  bool operator==(const StagePlacement&) const = default;
};

}  // namespace megatron::spec
