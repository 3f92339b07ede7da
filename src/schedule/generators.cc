#include "schedule/generators.h"

#include <algorithm>

#include "base/check.h"
#include "schedule/empty_program.h"

namespace megatron::schedule {
namespace {

/// The order in which a rank runs chunk and micro-batch, one entry per forward pass.
struct VirtualPass {
  int chunk;
  std::int64_t micro_batch;
};

std::vector<VirtualPass> virtual_order(int num_chunks, std::int64_t num_micro_batches, std::int64_t group_size) {
  std::vector<VirtualPass> order;
  for (std::int64_t first = 0; first < num_micro_batches; first += group_size)
    for (int chunk = 0; chunk < num_chunks; ++chunk)
      for (std::int64_t i = first; i < std::min(first + group_size, num_micro_batches); ++i)
        order.push_back({chunk, i});
  return order;
}

}  // namespace

Program empty_program(const spec::StagePlacement& placement, std::int64_t num_micro_batches) {
  MEGATRON_CHECK_GE(placement.num_ranks, 1, "ranks of a pipeline");
  MEGATRON_CHECK_GE(placement.num_chunks, 1, "virtual stages of a rank");
  MEGATRON_CHECK_GE(num_micro_batches, std::int64_t{1}, "micro-batches of a step");
  return {placement, std::vector<std::vector<Instruction>>(static_cast<std::size_t>(placement.num_ranks))};
}

Program one_f_one_b(int num_ranks, std::int64_t num_micro_batches) {
  Program program = empty_program({num_ranks}, num_micro_batches);
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<Instruction>& list = program.lists[static_cast<std::size_t>(rank)];
    const auto append = [&](Op op, std::int64_t i) { list.push_back({op, i, rank}); };
    const std::int64_t warmup = std::min<std::int64_t>(num_micro_batches, num_ranks - rank - 1);
    for (std::int64_t i = 0; i < warmup; ++i) append(Op::forward, i);
    for (std::int64_t i = warmup; i < num_micro_batches; ++i) {
      append(Op::forward, i);
      append(Op::backward, i - warmup);
    }
    for (std::int64_t i = num_micro_batches - warmup; i < num_micro_batches; ++i) append(Op::backward, i);
  }
  return program;
}

Program gpipe(const spec::StagePlacement& placement, std::int64_t num_micro_batches) {
  Program program = empty_program(placement, num_micro_batches);
  for (int rank = 0; rank < placement.num_ranks; ++rank) {
    std::vector<Instruction>& list = program.lists[static_cast<std::size_t>(rank)];
    for (int chunk = 0; chunk < placement.num_chunks; ++chunk)
      for (std::int64_t i = 0; i < num_micro_batches; ++i)
        list.push_back({Op::forward, i, placement.stage_of(rank, chunk)});
    for (int chunk = placement.num_chunks; chunk-- > 0;)
      for (std::int64_t i = 0; i < num_micro_batches; ++i)
        list.push_back({Op::backward, i, placement.stage_of(rank, chunk)});
  }
  return program;
}

Program interleaved(int num_ranks, int num_chunks, std::int64_t num_micro_batches, std::int64_t group_size) {
  const spec::StagePlacement placement{num_ranks, num_chunks};
  Program program = empty_program(placement, num_micro_batches);
  const std::string problem = interleaving_problem(num_ranks, num_micro_batches, group_size);
  MEGATRON_CHECK(problem.empty(), problem);
  const std::vector<VirtualPass> order = virtual_order(num_chunks, num_micro_batches, group_size);
  for (int rank = 0; rank < num_ranks; ++rank) {
    std::vector<Instruction>& list = program.lists[static_cast<std::size_t>(rank)];
    const auto forward = [&](std::size_t k) {
      list.push_back({Op::forward, order[k].micro_batch, placement.stage_of(rank, order[k].chunk)});
    };
    const auto backward = [&](std::size_t k) {
      list.push_back({Op::backward, order[k].micro_batch, placement.stage_of(rank, num_chunks - 1 - order[k].chunk)});
    };
    const std::int64_t wanted = 2 * (num_ranks - rank - 1) + (num_chunks - 1) * group_size;
    const std::size_t warmup = std::min(order.size(), static_cast<std::size_t>(wanted));
    for (std::size_t k = 0; k < warmup; ++k) forward(k);
    for (std::size_t k = warmup; k < order.size(); ++k) {
      forward(k);
      backward(k - warmup);
    }
    for (std::size_t k = order.size() - warmup; k < order.size(); ++k) backward(k);
  }
  return program;
}

std::string interleaving_problem(int num_ranks, std::int64_t num_micro_batches, std::int64_t group_size) {
  if (num_micro_batches < num_ranks)
    return str_cat("the interleaved schedule needs at least as many micro-batches as pipeline ranks: ",
                   num_micro_batches, " < ", num_ranks, "; nearest: ", num_ranks);
  if (group_size < num_ranks || group_size > num_micro_batches)
    return str_cat("a group of ", group_size, " micro-batches must lie between the pipeline size ", num_ranks,
                   " and the number of micro-batches ", num_micro_batches,
                   "; nearest: ", group_size < num_ranks ? num_ranks : num_micro_batches);
  const std::int64_t rest = num_micro_batches % group_size;
  if (rest > 0 && rest < num_ranks)
    return str_cat(num_micro_batches, " micro-batches in groups of ", group_size, " leave a last group of ", rest,
                   ", fewer than the pipeline size ", num_ranks, "; nearest: ", num_micro_batches - rest, " or ",
                   num_micro_batches - rest + num_ranks, " micro-batches");
  return {};
}

Program forward_only(const spec::StagePlacement& placement, std::int64_t num_micro_batches) {
  Program program = empty_program(placement, num_micro_batches);
  for (int rank = 0; rank < placement.num_ranks; ++rank)
    for (const VirtualPass& pass : virtual_order(placement.num_chunks, num_micro_batches, placement.num_ranks))
      program.lists[static_cast<std::size_t>(rank)].push_back(
          {Op::forward, pass.micro_batch, placement.stage_of(rank, pass.chunk)});
  return program;
}

}  // namespace megatron::schedule
