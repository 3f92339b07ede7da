// Zero-bubble schedules by hand (arXiv 2401.10241).
#include <algorithm>

#include "base/check.h"
#include "schedule/empty_program.h"
#include "schedule/generators.h"

namespace megatron::schedule {
namespace {

/// `warmup` forward passes; then I, W of `delay` micro-batches before, F in turn; at the end the W that are left.
std::vector<Instruction> delayed_weights(int stage, std::int64_t m, std::int64_t warmup, std::int64_t delay) {
  std::vector<Instruction> list;
  std::int64_t next_forward = 0, next_weight = 0;
  for (; next_forward < std::min(m, warmup); ++next_forward) list.push_back({Op::forward, next_forward, stage});
  for (std::int64_t i = 0; i < m; ++i) {
    list.push_back({Op::backward_input, i, stage});
    if (i - next_weight >= delay) list.push_back({Op::backward_weight, next_weight++, stage});
    if (next_forward < m) list.push_back({Op::forward, next_forward++, stage});
  }
  for (; next_weight < m; ++next_weight) list.push_back({Op::backward_weight, next_weight, stage});
  return list;
}

/// Hands out the passes of a rank's two stages in ascending order, `total` of each kind; those of micro-batches from
/// `m` on are left out of the list.
class VList {
 public:
  VList(int first_stage, int second_stage, std::int64_t m, std::int64_t total)
      : stages_{first_stage, second_stage}, m_(m), total_(total) {}

  void add(Op op, int chunk) {
    std::int64_t& next = next_[index(op)][chunk];
    if (next >= total_) return;
    if (next < m_) list_.push_back({op, next, stages_[chunk]});
    ++next;
  }
  bool complete(Op op, int chunk) const { return next_[index(op)][chunk] >= total_; }
  std::vector<Instruction> take() { return std::move(list_); }

 private:
  static int index(Op op) { return op == Op::forward ? 0 : op == Op::backward_input ? 1 : 2; }

  int stages_[2];
  std::int64_t m_, total_;
  std::int64_t next_[3][2] = {};
  std::vector<Instruction> list_;
};

/// The list of `rank`: each loop fills exactly the time until its first input comes from the neighbour.
std::vector<Instruction> v_list(int p, int rank, std::int64_t m) {
  // With fewer micro-batches the same order with the later ones left out.
  VList list(rank, 2 * p - 1 - rank, m, std::max<std::int64_t>(m, 2 * p - 1));
  for (int i = 0; i < 2 * (p - rank) - 1; ++i) list.add(Op::forward, 0);
  for (int i = 0; i < rank; ++i) {
    list.add(Op::forward, 1);
    list.add(Op::forward, 0);
  }
  const auto whole_second = [&list] {
    list.add(Op::forward, 1);
    list.add(Op::backward_input, 1);
    list.add(Op::backward_weight, 1);
  };
  for (int i = 0; i < p - rank; ++i) whole_second();
  while (!list.complete(Op::forward, 1)) {
    list.add(Op::forward, 0);
    list.add(Op::backward_input, 0);
    list.add(Op::backward_weight, 0);
    whole_second();
  }
  for (int i = 0; i < rank; ++i) {
    list.add(Op::backward_input, 0);
    list.add(Op::backward_input, 1);
  }
  for (int i = 0; i < p - rank; ++i) {
    list.add(Op::backward_input, 0);
    list.add(Op::backward_weight, 0);
  }
  while (!list.complete(Op::backward_weight, 1)) list.add(Op::backward_weight, 1);
  while (!list.complete(Op::backward_weight, 0)) list.add(Op::backward_weight, 0);
  return list.take();
}

}  // namespace

Program zb_h1(int num_ranks, std::int64_t num_micro_batches) {
  Program program = empty_program({num_ranks}, num_micro_batches);
  for (int rank = 0; rank < num_ranks; ++rank)
    program.lists[static_cast<std::size_t>(rank)] = delayed_weights(rank, num_micro_batches, num_ranks - rank, rank);
  return program;
}

Program zb_h2(int num_ranks, std::int64_t num_micro_batches) {
  Program program = empty_program({num_ranks}, num_micro_batches);
  for (int rank = 0; rank < num_ranks; ++rank)
    program.lists[static_cast<std::size_t>(rank)] =
        delayed_weights(rank, num_micro_batches, 2 * (num_ranks - rank) - 1, 2 * rank);
  return program;
}

Program zb_v(int num_ranks, std::int64_t num_micro_batches) {
  Program program = empty_program({num_ranks, 2, spec::PlacementKind::v}, num_micro_batches);
  for (int rank = 0; rank < num_ranks; ++rank)
    program.lists[static_cast<std::size_t>(rank)] = v_list(num_ranks, rank, num_micro_batches);
  return program;
}

}  // namespace megatron::schedule
