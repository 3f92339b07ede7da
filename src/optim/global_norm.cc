#include "optim/global_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "base/exact_sum.h"
#include "kernels/optimizer_step.h"

namespace megatron::optim {
namespace {

constexpr std::int64_t kSegment = kernels::kNormSegment;

/// Adds the squares of one piece, cut into segments by logical columns (by logical rows for a 1-D tensor).
void add_piece(kernels::Executor& exec, int num_dims, const spec::FlatPiece& piece, const Tensor& part, ExactSum& sum) {
  if (num_dims == 1) {
    const std::int64_t head = std::min((kSegment - piece.global.row % kSegment) % kSegment, piece.global.rows);
    if (head > 0) kernels::add_squared_norm(exec, part.slice(0, 0, head), sum);
    if (head < part.numel()) kernels::add_squared_norm(exec, part.slice(0, head, part.numel()), sum);
    return;
  }
  const std::int64_t cols = piece.global.cols;
  if (cols % kSegment == 0) {
    kernels::add_squared_norm(exec, part, sum);
    return;
  }
  for (std::int64_t row = 0; row < piece.global.rows; ++row)
    kernels::add_squared_norm(exec, part.slice(0, row * cols, (row + 1) * cols), sum);
}

/// The sum of squares of this rank's pieces; `tensor` is the one of each part that counts.
ExactSum squares_of(mesh::Rank& rank, std::span<const OwnedPart> parts, Tensor OwnedPart::*tensor) {
  ExactSum sum;
  for (const OwnedPart& part : parts) {
    const ParameterRange& range = part.range;
    const nn::Parameter& parameter = *range.parameter;
    if (parameter.tied_use) continue;
    const Tensor& flat = part.*tensor;
    for (const spec::FlatPiece& piece : spec::pieces_of_range(parameter.sharding, range.begin, range.end))
      if (piece.owned)
        add_piece(rank.exec, parameter.sharding.num_dims, piece,
                  flat.slice(0, piece.local_begin - range.begin, piece.local_end() - range.begin), sum);
  }
  return sum;
}

ExactSum sum_over(mesh::Rank& rank, const mesh::Group& group, ExactSum sum, const char* label) {
  if (!group.trivial()) {
    Tensor words = rank.exec.empty(Shape{ExactSum::kWords}, DType::int64, MemoryKind::communication);
    if (!words.is_meta()) sum.write(words.data<std::int64_t>());
    words = group.all_reduce(words, label);
    if (!words.is_meta()) sum = ExactSum::read(words.data<std::int64_t>());
  }
  return sum;
}

}  // namespace

ExactSum global_squares(mesh::Rank& rank, std::span<const OwnedPart> owned, bool sharded) {
  return sum_over(rank, sharded ? rank.mesh.world : rank.mesh.model, local_squares(rank, owned), "gradient norm");
}

double global_grad_norm(mesh::Rank& rank, std::span<const OwnedPart> owned, bool sharded) {
  return std::sqrt(global_squares(rank, owned, sharded).value());
}

ExactSum local_squares(mesh::Rank& rank, std::span<const OwnedPart> owned) {
  return squares_of(rank, owned, &OwnedPart::gradient);
}

double global_parameter_norm(mesh::Rank& rank, std::span<const OwnedPart> held, bool sharded) {
  const ExactSum own = squares_of(rank, held, &OwnedPart::value);
  return std::sqrt(sum_over(rank, sharded ? rank.mesh.world : rank.mesh.model, own, "parameter norm").value());
}

double clip_coefficient(double norm, double max_norm) {
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient < 1.0 ? coefficient : 1.0;
}

}  // namespace megatron::optim
