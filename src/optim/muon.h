// Muon: momentum, orthogonalised matrix by matrix (Newton–Schulz, newton_schulz.h), as the update of a weight whose
// rows or columns tensor-parallel ranks may share.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "mesh/mesh.h"
#include "nn/parameter.h"
#include "optim/update_rule.h"

namespace megatron::optim {

class Muon {
 public:
  /// `matrices` are the parameters whose rule is UpdateRule::muon, in the same order on all tensor-parallel ranks.
  /// Collective over tp, whose ranks tell each other which part of each matrix they hold. Queries, keys and values of a
  /// linear_qkv are matrices of their own (spec.muon.split_qkv).
  Muon(mesh::Rank& rank, const spec::OptimizerSpec& spec, std::span<nn::Parameter* const> matrices);

  /// buf = μ·buf + (1 − μ)·g; u = (1 − μ)·g + μ·buf with Nesterov, else buf; p = p·(1 − lr·wd) − lr·s·NS(u), where s is
  /// the factor of muon_scale for the whole matrix × the extra factor. `weight`, `grad` and `momentum` are this rank's
  /// shard of `parameter`, dense, fp32 or fp64 alike; grad is left as it is. `rounded` (may be undefined): bfloat16 or
  /// float16 of the shard's shape, becomes the new weight rounded to nearest even. Collective over tp (all ranks call
  /// it for the same matrices in the same order), except blockwise.
  ///
  /// Level 0: duplicated and distributed give the bits of one rank that holds the whole matrix. Blockwise
  /// orthogonalises each shard by itself: another result at each tensor-parallel size, as in Megatron.
  void update(const nn::Parameter& parameter, const UpdateScalars& scalars, Tensor weight, const Tensor& grad,
              const Tensor& momentum, Tensor rounded = {});

 private:
  /// Rows [row, row + rows) × columns [col, col + cols) of matrix `part` are rows from local_row on of rank `holder`.
  struct Block {
    std::size_t part = 0;
    std::int64_t row = 0, rows = 0, col = 0, cols = 0;
    int holder = 0;
    std::int64_t local_row = 0;
  };
  struct Part {
    std::int64_t rows = 0, cols = 0;
  };
  /// How shards make up the matrices that are orthogonalised, and which of their blocks this rank holds.
  struct Plan {
    bool gathers = false;
    std::vector<Part> parts;
    std::vector<Block> all, mine;
  };

  void exchange_shards(std::span<nn::Parameter* const> matrices);
  Plan whole_plan(const nn::Parameter& parameter, const std::vector<std::vector<spec::Piece>>& held) const;
  Plan block_plan(const nn::Parameter& parameter) const;
  std::vector<Block> split_piece(const nn::Parameter& parameter, const spec::Piece& piece, int holder) const;
  std::size_t num_parts(const nn::Parameter& parameter) const;
  /// Advances the momentum and returns what is to be orthogonalised, shaped as the shard.
  Tensor direction(const UpdateScalars& scalars, const Tensor& grad, const Tensor& momentum) const;
  /// All shards one below the other, or the own one where nothing is to be gathered.
  Tensor gathered(const Plan& plan, Tensor update) const;
  /// One of the plan's matrices out of the gathered shards.
  Tensor assembled(const Plan& plan, std::size_t part, const Tensor& source) const;
  /// Adds what this rank holds of an orthogonalised matrix to the weight.
  void add(const Plan& plan, std::size_t part, const Tensor& matrix, const UpdateScalars& scalars, Tensor& weight,
           Tensor& rounded) const;

  mesh::Rank& rank_;
  spec::OptimizerSpec spec_;
  std::unordered_map<const nn::Parameter*, Plan> plans_;
};

}  // namespace megatron::optim
