// The orthogonal factor of a matrix by Newton–Schulz iteration, the core of Muon.
#pragma once

#include <span>

#include "mesh/mesh.h"
#include "spec/optimizer_spec.h"

namespace megatron::optim {

/// One step: A = X·Xᵀ, X ← a·X + (b·A + c·A²)·X.
struct NewtonSchulzStep {
  double a, b, c;
};

/// The named set, which repeats until there are enough steps.
std::span<const NewtonSchulzStep> newton_schulz_steps(spec::MuonCoefficients coefficients);

/// x [R, C], dense, fp32 or fp64, divided by max(‖x‖, 1e-7) (Frobenius) and then taken through `count` steps; returns
/// the result and uses up x. A matrix with more rows than columns is iterated from the other side, Xᵀ·X, with the same
/// bits as its transpose.
/// With `split` the rows of each product are shared among the ranks of that group and gathered (x is whole and alike on
/// all of them); the result has the same bits. Level 0: products of kernels/matmul.h, the norm's squares added exactly.
Tensor newton_schulz(kernels::Executor& exec, Tensor x, std::span<const NewtonSchulzStep> steps, std::int64_t count,
                     const mesh::Group* split = nullptr);

/// Megatron's factor on an orthogonalised update of a matrix [out, in].
double muon_scale(spec::MuonScaleMode mode, std::int64_t out, std::int64_t in);

}  // namespace megatron::optim
