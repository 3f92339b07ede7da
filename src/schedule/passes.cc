#include "schedule/passes.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"
#include "schedule/pass_table.h"

namespace megatron::schedule {
namespace {

/// A message for one rank: who sends it, and before which pass it is received.
struct Arrival {
  std::size_t sender, at;
  Instruction receive;
};

/// The message that a pass gives to a stage on another rank; false where there is none.
bool message_after(const spec::StagePlacement& placement, const Instruction& pass, Instruction& send) {
  if (pass.op == Op::backward_weight) return false;
  const bool forward = pass.op == Op::forward;
  const int target = forward ? pass.stage + 1 : pass.stage - 1;
  if (target < 0 || target >= placement.num_stages()) return false;
  send = {forward ? Op::send_forward : Op::send_backward, pass.micro_batch, pass.stage};
  return placement.rank_of(target) != placement.rank_of(pass.stage);
}

/// Place of each F and of each B or I in the list of its rank.
struct Places {
  PassTable<std::size_t> forward, backward;
};

Places find_places(const Program& program, std::int64_t num_micro_batches) {
  Places places{{program.placement, num_micro_batches}, {program.placement, num_micro_batches}};
  for (const std::vector<Instruction>& list : program.lists)
    for (std::size_t i = 0; i < list.size(); ++i) {
      MEGATRON_CHECK(is_compute(list[i].op), to_text(list[i]), ": a program without communication is expected");
      if (list[i].op == Op::forward) places.forward.at(list[i]) = i;
      if (is_input_backward(list[i].op)) places.backward.at(list[i]) = i;
    }
  return places;
}

/// What each rank receives, by sender, in the order of sending, and late enough for none to overtake another.
std::vector<std::vector<Arrival>> find_arrivals(const Program& compute) {
  Places places = find_places(compute, num_micro_batches(compute));
  std::vector<std::vector<Arrival>> arrivals(compute.lists.size());
  for (std::size_t sender = 0; sender < compute.lists.size(); ++sender)
    for (const Instruction& pass : compute.lists[sender]) {
      Instruction send{Op::send_forward};
      if (!message_after(compute.placement, pass, send)) continue;
      const Instruction receive = counterpart(send);
      const std::size_t at =
          receive.op == Op::receive_forward ? places.forward.at(receive) : places.backward.at(receive);
      arrivals[static_cast<std::size_t>(compute.placement.rank_of(receive.stage))].push_back({sender, at, receive});
    }
  for (std::vector<Arrival>& list : arrivals) {
    for (std::size_t i = list.size(); i-- > 1;)
      if (list[i - 1].sender == list[i].sender) list[i - 1].at = std::min(list[i - 1].at, list[i].at);
    std::stable_sort(list.begin(), list.end(), [](const Arrival& a, const Arrival& b) { return a.at < b.at; });
  }
  return arrivals;
}

}  // namespace

Program split_backward(Program program) {
  for (std::vector<Instruction>& list : program.lists) {
    std::vector<Instruction> split;
    split.reserve(list.size() * 3 / 2);
    for (Instruction instruction : list) {
      const bool whole = instruction.op == Op::backward;
      if (whole) instruction.op = Op::backward_input;
      split.push_back(instruction);
      if (whole) split.push_back({Op::backward_weight, instruction.micro_batch, instruction.stage});
    }
    list = std::move(split);
  }
  return program;
}

Program insert_communication(const Program& compute) {
  validate_passes(compute);
  const auto arrivals = find_arrivals(compute);
  Program program{compute.placement, std::vector<std::vector<Instruction>>(compute.lists.size())};
  for (std::size_t rank = 0; rank < compute.lists.size(); ++rank) {
    auto arrival = arrivals[rank].begin();
    std::vector<Instruction>& list = program.lists[rank];
    for (std::size_t i = 0; i < compute.lists[rank].size(); ++i) {
      for (; arrival != arrivals[rank].end() && arrival->at == i; ++arrival) list.push_back(arrival->receive);
      list.push_back(compute.lists[rank][i]);
      Instruction send{Op::send_forward};
      if (message_after(compute.placement, list.back(), send)) list.push_back(send);
    }
  }
  return program;
}

std::vector<std::size_t> repeatable_front(const Program& program) {
  const spec::StagePlacement& placement = program.placement;
  const auto in_front = [&](const Instruction& i) {
    if (i.op == Op::forward) return i.stage + 1 < placement.num_stages();
    return i.op == Op::send_forward || i.op == Op::receive_forward;
  };
  std::vector<std::size_t> ends;
  for (const std::vector<Instruction>& list : program.lists)
    ends.push_back(static_cast<std::size_t>(std::find_if_not(list.begin(), list.end(), in_front) - list.begin()));
  // A message whose other end lies outside ends the part before it, until no such message is left.
  const auto holds = [&](int stage, const Instruction& wanted) {
    const auto rank = static_cast<std::size_t>(placement.rank_of(stage));
    const auto& list = program.lists[rank];
    const auto end = list.begin() + static_cast<std::ptrdiff_t>(ends[rank]);
    return std::find(list.begin(), end, wanted) != end;
  };
  const auto is_open = [&](const Instruction& i) {
    if (i.op == Op::send_forward) return !holds(i.stage + 1, {Op::receive_forward, i.micro_batch, i.stage + 1});
    if (i.op == Op::receive_forward) return !holds(i.stage - 1, {Op::send_forward, i.micro_batch, i.stage - 1});
    return false;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      const auto begin = program.lists[rank].begin(), end = begin + static_cast<std::ptrdiff_t>(ends[rank]);
      const auto open = std::find_if(begin, end, is_open);
      changed = changed || open != end;
      ends[rank] = static_cast<std::size_t>(open - begin);
    }
  }
  return ends;
}

std::int64_t max_live_stashes(std::span<const Instruction> instructions) {
  const bool training = std::any_of(instructions.begin(), instructions.end(), [](const Instruction& i) {
    return i.op == Op::backward || i.op == Op::backward_weight;
  });
  if (!training) return 0;
  std::int64_t live = 0, most = 0;
  for (const Instruction& instruction : instructions) {
    if (instruction.op == Op::forward) most = std::max(most, ++live);
    if (instruction.op == Op::backward || instruction.op == Op::backward_weight) --live;
  }
  return most;
}

namespace {

/// Change of the weight of a rank's stashes.
double weight_change(Op op, double kept) {
  switch (op) {
    case Op::forward:
      return 1.0;
    case Op::backward:
      return -1.0;
    case Op::backward_input:
      return kept - 1.0;
    case Op::backward_weight:
      return -kept;
    default:
      return 0.0;
  }
}

}  // namespace

double max_stash_weight(std::span<const Instruction> instructions, double kept_after_input_grad) {
  if (max_live_stashes(instructions) == 0) return 0.0;
  double live = 0.0, most = 0.0;
  for (const Instruction& instruction : instructions)
    most = std::max(most, live += weight_change(instruction.op, kept_after_input_grad));
  return most;
}

void check_memory(const Program& program, double limit, double kept_after_input_grad) {
  if (limit <= 0.0) return;
  const double most = limit * program.placement.num_stages();
  for (std::size_t rank = 0; rank < program.lists.size(); ++rank) {
    if (max_stash_weight(program.lists[rank], kept_after_input_grad) <= most + kStashSlack) continue;
    double live = 0.0;
    for (const Instruction& instruction : program.lists[rank])
      if ((live += weight_change(instruction.op, kept_after_input_grad)) > most + kStashSlack)
        throw Error(str_cat("pipeline schedule, rank ", rank, ": ", to_text(instruction), " makes ", live,
                            " stashes, more than the ", most, " of --pipeline-memory-limit ", limit));
  }
}

std::int64_t max_pending_weight_passes(std::span<const Instruction> instructions) {
  std::int64_t pending = 0, most = 0;
  for (const Instruction& instruction : instructions) {
    if (instruction.op == Op::backward_input) most = std::max(most, ++pending);
    if (instruction.op == Op::backward_weight) --pending;
  }
  return most;
}

}  // namespace megatron::schedule
