// Norms over a whole model that is spread over ranks, and clipping by them.
#pragma once

#include <span>

#include "base/exact_sum.h"
#include "mesh/mesh.h"
#include "optim/flat_layout.h"

namespace megatron::optim {

/// √Σ g² over all logical parameters: owned pieces only, tied uses not. `owned`: what this rank counts of each
/// parameter; with `sharded` data-parallel ranks count different parts and the sum goes over the world, else over the
/// model group; collective over these. Level 0: squares are summed in double over segments of 64 elements counted
/// within each logical row (1-D tensors: within the tensor), the segments exactly. So the result is the same for every
/// layout that has the same gradients, as long as columns and 1-D tensors are cut at multiples of 64 (shards of
/// data-parallel ranks are cut at segments: FlatLayout); other cuts change it by rounding of doubles (about 1e-16).
double global_grad_norm(mesh::Rank& rank, std::span<const OwnedPart> owned, bool sharded);
/// The sum under that root, on every rank.
ExactSum global_squares(mesh::Rank& rank, std::span<const OwnedPart> owned, bool sharded);
/// This rank's part of it: exact, to be added over the ranks.
ExactSum local_squares(mesh::Rank& rank, std::span<const OwnedPart> owned);
/// The norm of the values.
double global_parameter_norm(mesh::Rank& rank, std::span<const OwnedPart> held, bool sharded);

/// Factor on the gradients that brings `norm` down to max_norm: max_norm / (norm + 1e-6) where that is below 1, else 1.
double clip_coefficient(double norm, double max_norm);

}  // namespace megatron::optim
