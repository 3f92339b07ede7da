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

/// √ of the sum of squares over `group`; `pick` chooses the tensor of a parameter.
template <typename Pick>
double norm_of(mesh::Rank& rank, const mesh::Group& group, std::span<const ParameterRange> ranges, const char* label,
               Pick pick) {
  ExactSum sum;
  for (const ParameterRange& range : ranges) {
    const nn::Parameter& parameter = *range.parameter;
    if (parameter.tied_use) continue;
    const Tensor flat = pick(parameter).flat();
    for (const spec::FlatPiece& piece : spec::pieces_of_range(parameter.sharding, range.begin, range.end))
      if (piece.owned)
        add_piece(rank.exec, parameter.sharding.num_dims, piece, flat.slice(0, piece.local_begin, piece.local_end()),
                  sum);
  }
  if (!group.trivial()) {
    Tensor words = rank.exec.empty(Shape{ExactSum::kWords}, DType::int64, MemoryKind::communication);
    ExactSum carried;  // adding carries the limbs, so that sums over ranks cannot overflow them
    carried.add(sum);
    if (!words.is_meta()) std::copy(carried.words().begin(), carried.words().end(), words.data<std::int64_t>());
    words = group.all_reduce(words, label);
    if (!words.is_meta()) std::copy_n(words.data<std::int64_t>(), ExactSum::kWords, sum.words().begin());
  }
  return std::sqrt(sum.value());
}

}  // namespace

double global_grad_norm(mesh::Rank& rank, std::span<const ParameterRange> owned, bool sharded) {
  return norm_of(rank, sharded ? rank.mesh.world : rank.mesh.model, owned, "gradient norm",
                 [](const nn::Parameter& p) { return p.main_grad; });
}

double global_parameter_norm(mesh::Rank& rank, std::span<nn::Parameter* const> parameters) {
  return norm_of(rank, rank.mesh.model, whole_ranges(parameters), "parameter norm",
                 [](const nn::Parameter& p) { return p.value; });
}

double clip_coefficient(double norm, double max_norm) {
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient < 1.0 ? coefficient : 1.0;
}

}  // namespace megatron::optim
