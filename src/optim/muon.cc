#include "optim/muon.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "kernels/elementwise.h"
#include "kernels/optimizer_variants.h"
#include "optim/newton_schulz.h"

namespace megatron::optim {
namespace {

constexpr std::size_t kMaxPieces = 4;
constexpr std::size_t kPieceWords = 6;
constexpr std::size_t kShardWords = kMaxPieces * kPieceWords;

using ShardWords = std::array<std::int64_t, kShardWords>;

ShardWords words_of(const spec::Sharding& sharding) {
  MEGATRON_CHECK_LE(sharding.pieces.size(), kMaxPieces, "pieces of one shard");
  ShardWords words{};
  auto* out = words.data();
  for (const spec::Piece& piece : sharding.pieces)
    for (const std::int64_t word : {piece.global.row, piece.global.col, piece.global.rows, piece.global.cols,
                                    piece.local_row, static_cast<std::int64_t>(piece.owned)})
      *out++ = word;
  return words;
}

std::vector<spec::Piece> pieces_of(const std::int64_t* words) {
  std::vector<spec::Piece> pieces;
  for (std::size_t i = 0; i < kMaxPieces; ++i, words += kPieceWords)
    if (words[2] > 0) pieces.push_back({{words[0], words[1], words[2], words[3]}, words[4], words[5] != 0});
  return pieces;
}

std::int64_t sum_of(const std::vector<std::int64_t>& values) {
  std::int64_t sum = 0;
  for (const std::int64_t value : values) sum += value;
  return sum;
}

}  // namespace

Muon::Muon(mesh::Rank& rank, const spec::OptimizerSpec& spec, std::span<nn::Parameter* const> matrices)
    : rank_(rank), spec_(spec) {
  if (spec_.muon.tp_mode == spec::MuonTpMode::blockwise || rank_.mesh.tp.trivial()) {
    for (const nn::Parameter* parameter : matrices) plans_.emplace(parameter, block_plan(*parameter));
  } else if (!matrices.empty()) {
    exchange_shards(matrices);
  }
}

void Muon::exchange_shards(std::span<nn::Parameter* const> matrices) {
  const int size = rank_.mesh.tp.size();
  const std::int64_t count = std::ssize(matrices) * static_cast<std::int64_t>(kShardWords);
  Tensor mine = rank_.exec.empty(Shape{count}, DType::int64, MemoryKind::communication);
  if (!mine.is_meta()) {
    auto* out = mine.data<std::int64_t>();
    for (const nn::Parameter* parameter : matrices) {
      const ShardWords words = words_of(parameter->sharding);
      out = std::copy(words.begin(), words.end(), out);
    }
  }
  Tensor all = rank_.exec.empty(Shape{count * size}, DType::int64, MemoryKind::communication);
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(size), count);
  all = rank_.mesh.tp.communicator()->all_gather(mine, counts, std::move(all), "shards of matrices").wait();
  std::int64_t place = 0;
  for (const nn::Parameter* parameter : matrices) {
    // Without memory all ranks look like this one: the same shapes, messages and products.
    std::vector<std::vector<spec::Piece>> held(static_cast<std::size_t>(size), parameter->sharding.pieces);
    for (std::size_t r = 0; r < held.size() && !all.is_meta(); ++r)
      held[r] = pieces_of(std::as_const(all).data<std::int64_t>() + static_cast<std::int64_t>(r) * count + place);
    plans_.emplace(parameter, whole_plan(*parameter, held));
    place += static_cast<std::int64_t>(kShardWords);
  }
}

std::size_t Muon::num_parts(const nn::Parameter& parameter) const {
  return spec_.muon.split_qkv && !parameter.group_rows.empty() ? parameter.group_rows.size() : 1;
}

std::vector<Muon::Block> Muon::split_piece(const nn::Parameter& parameter, const spec::Piece& piece, int holder) const {
  const spec::Box& box = piece.global;
  if (num_parts(parameter) == 1) return {{0, box.row, box.rows, box.col, box.cols, holder, piece.local_row}};
  std::vector<Block> blocks;
  const std::int64_t group_rows = sum_of(parameter.group_rows);
  for (std::int64_t row = box.row; row < box.row + box.rows;) {
    const std::int64_t group = row / group_rows;
    std::int64_t part_begin = group * group_rows;
    std::size_t part = 0;
    while (part_begin + parameter.group_rows[part] <= row) part_begin += parameter.group_rows[part++];
    const std::int64_t end = std::min(part_begin + parameter.group_rows[part], box.row + box.rows);
    blocks.push_back({part, group * parameter.group_rows[part] + row - part_begin, end - row, box.col, box.cols, holder,
                      piece.local_row + row - box.row});
    row = end;
  }
  return blocks;
}

Muon::Plan Muon::whole_plan(const nn::Parameter& parameter, const std::vector<std::vector<spec::Piece>>& held) const {
  Plan plan;
  plan.gathers = true;
  const spec::Sharding& sharding = parameter.sharding;
  if (num_parts(parameter) == 1) {
    plan.parts.push_back({sharding.rows, sharding.cols});
  } else {
    const std::int64_t groups = sharding.rows / sum_of(parameter.group_rows);
    for (const std::int64_t rows : parameter.group_rows) plan.parts.push_back({groups * rows, sharding.cols});
  }
  for (std::size_t r = 0; r < held.size(); ++r)
    for (const spec::Piece& piece : held[r])
      for (const Block& block : split_piece(parameter, piece, static_cast<int>(r))) {
        if (piece.owned) plan.all.push_back(block);
        if (block.holder == rank_.mesh.tp.rank()) plan.mine.push_back(block);
      }
  return plan;
}

/// The shard's own rows, part by part; with one rank that is the whole matrix.
Muon::Plan Muon::block_plan(const nn::Parameter& parameter) const {
  Plan plan;
  plan.parts.assign(num_parts(parameter), {0, parameter.sharding.local_cols});
  for (const spec::Piece& piece : parameter.sharding.pieces)
    for (Block block : split_piece(parameter, piece, 0)) {
      Part& part = plan.parts[block.part];
      block.row = part.rows;
      block.col = 0;
      part.rows += block.rows;
      plan.mine.push_back(block);
    }
  plan.all = plan.mine;
  return plan;
}

Tensor Muon::gathered(const Plan& plan, Tensor update) const {
  if (!plan.gathers) return update;
  const mesh::Group& tp = rank_.mesh.tp;
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(tp.size()), update.size(0));
  Tensor all =
      rank_.exec.empty(Shape{tp.size() * update.size(0), update.size(1)}, update.dtype(), MemoryKind::communication);
  return tp.communicator()->all_gather(std::move(update), rows, std::move(all), "shards of an update").wait();
}

Tensor Muon::direction(const UpdateScalars& scalars, const Tensor& grad, const Tensor& momentum) const {
  kernels::Executor& exec = rank_.exec;
  const double keep = spec_.muon.momentum, fresh = (1.0 - keep) * scalars.grad_scale;
  Tensor flat_momentum = momentum.flat();
  const Tensor flat_grad = grad.flat();
  kernels::weighted_sum(exec, keep, flat_momentum, fresh, flat_grad, flat_momentum);
  Tensor result = exec.empty(momentum.shape(), momentum.dtype());
  Tensor flat = result.flat();
  if (spec_.muon.nesterov)
    kernels::weighted_sum(exec, fresh, flat_grad, keep, flat_momentum, flat);
  else
    kernels::copy(exec, flat_momentum, flat);
  return result;
}

Tensor Muon::assembled(const Plan& plan, std::size_t part, const Tensor& source) const {
  const Part& size = plan.parts[part];
  Tensor matrix = rank_.exec.empty(Shape{size.rows, size.cols}, source.dtype());
  const std::int64_t rows_each = plan.gathers ? source.size(0) / rank_.mesh.tp.size() : 0;
  for (const Block& block : plan.all) {
    if (block.part != part) continue;
    const std::int64_t from = block.holder * rows_each + block.local_row;
    kernels::copy(rank_.exec, source.slice(0, from, from + block.rows),
                  matrix.slice(0, block.row, block.row + block.rows).slice(1, block.col, block.col + block.cols));
  }
  return matrix;
}

void Muon::add(const Plan& plan, std::size_t part, const Tensor& matrix, const UpdateScalars& scalars, Tensor& weight,
               Tensor& rounded) const {
  kernels::Executor& exec = rank_.exec;
  const double shrink = 1.0 - scalars.lr * scalars.weight_decay;
  const double factor =
      scalars.lr * spec_.muon.extra_scale_factor * muon_scale(spec_.muon.scale_mode, matrix.size(0), matrix.size(1));
  for (const Block& block : plan.mine) {
    if (block.part != part) continue;
    Tensor piece = exec.empty(Shape{block.rows, block.cols}, weight.dtype());
    kernels::copy(exec, matrix.slice(0, block.row, block.row + block.rows).slice(1, block.col, block.col + block.cols),
                  piece);
    const auto rows_of = [&](Tensor& tensor) {
      return tensor.slice(0, block.local_row, block.local_row + block.rows).flat();
    };
    Tensor target = rows_of(weight), copy;
    TensorView copy_view;
    if (rounded.defined()) {
      copy = rows_of(rounded);
      copy_view = copy.view();
    }
    kernels::weighted_sum(exec, shrink, target, -factor, piece.flat(), target, copy_view);
  }
}

void Muon::update(const nn::Parameter& parameter, const UpdateScalars& scalars, Tensor weight, const Tensor& grad,
                  const Tensor& momentum, Tensor rounded) {
  const auto found = plans_.find(&parameter);
  MEGATRON_CHECK(found != plans_.end(), parameter.name, " is not one of the matrices");
  const Plan& plan = found->second;
  const spec::MuonSpec& muon = spec_.muon;
  const Tensor source = gathered(plan, direction(scalars, grad, momentum));
  const mesh::Group* split = muon.tp_mode == spec::MuonTpMode::distributed ? &rank_.mesh.tp : nullptr;
  for (std::size_t part = 0; part < plan.parts.size(); ++part) {
    if (plan.parts[part].rows == 0) continue;
    const Tensor matrix = newton_schulz(rank_.exec, assembled(plan, part, source),
                                        newton_schulz_steps(muon.coefficients), muon.num_ns_steps, split);
    add(plan, part, matrix, scalars, weight, rounded);
  }
}

}  // namespace megatron::optim
