#include "schedule/passes.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"

namespace megatron::schedule {
namespace {

[[noreturn]] void fail(std::size_t stage, const std::string& what) {
  throw Error(str_cat("pipeline schedule, stage ", stage, ": ", what));
}

bool is_backward(Op op) { return op == Op::backward || op == Op::backward_input; }

/// Micro-batches in the order in which `op` occurs in a list.
std::vector<std::int64_t> order_of(const std::vector<Instruction>& list, Op op) {
  std::vector<std::int64_t> order;
  for (const Instruction& instruction : list)
    if (instruction.op == op) order.push_back(instruction.micro_batch);
  return order;
}

/// The pass of `micro_batch` that a list must have next, given the passes it had so far.
struct Progress {
  bool forward = false, backward_input = false, done = false;
};

void check_passes(std::size_t stage, const std::vector<Instruction>& list, std::int64_t num_micro_batches,
                  bool training) {
  std::map<std::int64_t, Progress> progress;
  for (const Instruction& instruction : list) {
    const std::string text = to_text(instruction);
    if (instruction.chunk != 0) fail(stage, str_cat(text, " is of chunk ", instruction.chunk, ", stages have one"));
    if (instruction.micro_batch < 0 || instruction.micro_batch >= num_micro_batches)
      fail(stage, str_cat(text, " is outside the ", num_micro_batches, " micro-batches"));
    if (!is_compute(instruction.op)) continue;
    Progress& p = progress[instruction.micro_batch];
    if (instruction.op == Op::forward) {
      if (p.forward) fail(stage, str_cat(text, " comes twice"));
      p.forward = true;
      continue;
    }
    if (!p.forward) fail(stage, str_cat(text, " comes before its F"));
    if (p.done) fail(stage, str_cat(text, " comes after its backward pass was complete"));
    if (instruction.op == Op::backward_input || instruction.op == Op::backward) {
      if (p.backward_input) fail(stage, str_cat(text, " comes after its I"));
      p.backward_input = true;
    } else if (!p.backward_input) {
      fail(stage, str_cat(text, " comes before its I"));
    }
    p.done = instruction.op != Op::backward_input;
  }
  for (std::int64_t i = 0; i < num_micro_batches; ++i) {
    const auto it = progress.find(i);
    if (it == progress.end()) fail(stage, str_cat("micro-batch ", i, " has no F"));
    if (training && !it->second.done) fail(stage, str_cat("the backward pass of micro-batch ", i, " is missing"));
  }
}

/// Where each instruction of a list stands; each may come once.
std::map<std::pair<Op, std::int64_t>, std::size_t> places_of(std::size_t stage, const std::vector<Instruction>& list) {
  std::map<std::pair<Op, std::int64_t>, std::size_t> places;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (!places.emplace(std::pair{list[i].op, list[i].micro_batch}, i).second)
      fail(stage, str_cat(to_text(list[i]), " comes twice"));
  return places;
}

/// Each pass has its receive before it and its send after it, once, and nothing else is sent or received.
void check_messages(std::size_t stage, std::size_t num_stages, const std::vector<Instruction>& list) {
  const bool first = stage == 0, last = stage + 1 == num_stages;
  const auto places = places_of(stage, list);
  const auto require = [&](Op op, std::size_t pass_at) {
    const Instruction& pass = list[pass_at];
    const Instruction message{op, pass.micro_batch, 0};
    const auto it = places.find({op, pass.micro_batch});
    if (it == places.end()) fail(stage, str_cat(to_text(pass), " needs ", to_text(message)));
    if (is_receive(op) && it->second > pass_at) fail(stage, str_cat(to_text(message), " comes after ", to_text(pass)));
    if (is_send(op) && it->second < pass_at) fail(stage, str_cat(to_text(message), " comes before ", to_text(pass)));
  };
  const bool training = std::any_of(list.begin(), list.end(), [](const Instruction& i) { return is_backward(i.op); });
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Op op = list[i].op;
    if (op == Op::forward && !first) require(Op::receive_forward, i);
    if (op == Op::forward && !last) require(Op::send_forward, i);
    if (is_backward(op) && !last) require(Op::receive_backward, i);
    if (is_backward(op) && !first) require(Op::send_backward, i);
    const bool forward_message = op == Op::receive_forward || op == Op::send_forward;
    const bool to_or_from_before = op == Op::receive_forward || op == Op::send_backward;
    if (is_compute(op)) continue;
    if ((to_or_from_before && first) || (!to_or_from_before && last))
      fail(stage, str_cat(to_text(list[i]), " has no neighbour"));
    if (!forward_message && !training) fail(stage, str_cat(to_text(list[i]), " without any backward pass"));
  }
}

void check_pairs(const Program& program) {
  for (std::size_t stage = 0; stage + 1 < program.size(); ++stage) {
    if (order_of(program[stage], Op::send_forward) != order_of(program[stage + 1], Op::receive_forward))
      fail(stage, str_cat("the order of its sf is not that of the rf of stage ", stage + 1));
    if (order_of(program[stage + 1], Op::send_backward) != order_of(program[stage], Op::receive_backward))
      fail(stage, str_cat("the order of its rb is not that of the sb of stage ", stage + 1));
  }
}

/// Runs all lists side by side with sends that wait for their receives.
class Rendezvous {
 public:
  explicit Rendezvous(const Program& program) : program_(program), at_(program.size()), done_(program.size()) {
    for (std::size_t s = 0; s < program.size(); ++s) done_[s].assign(program[s].size(), false);
  }

  void run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (std::size_t s = 0; s < program_.size(); ++s) moved = advance(s) || moved;
    }
    for (std::size_t s = 0; s < program_.size(); ++s)
      if (at_[s] < program_[s].size())
        fail(s, str_cat("deadlock at ", to_text(program_[s][at_[s]]), " when each send waits for its receive"));
  }

 private:
  /// Moves past what is complete and matches what is posted.
  bool advance(std::size_t stage) {
    const std::vector<Instruction>& list = program_[stage];
    bool moved = false;
    while (at_[stage] < list.size() && (is_compute(list[at_[stage]].op) || done_[stage][at_[stage]])) {
      ++at_[stage];
      moved = true;
    }
    for (std::size_t i = at_[stage]; i < list.size() && !is_compute(list[i].op); ++i)
      if (!done_[stage][i] && is_send(list[i].op)) moved = match(stage, i) || moved;
    return moved;
  }

  bool match(std::size_t stage, std::size_t i) {
    const Instruction& send = program_[stage][i];
    const bool forward = send.op == Op::send_forward;
    const std::size_t peer = forward ? stage + 1 : stage - 1;
    const Op wanted = forward ? Op::receive_forward : Op::receive_backward;
    const std::vector<Instruction>& list = program_[peer];
    for (std::size_t j = at_[peer]; j < list.size() && !is_compute(list[j].op); ++j) {
      if (list[j].op != wanted || done_[peer][j]) continue;
      done_[stage][i] = done_[peer][j] = true;  // first in, first out: the first open receive is the one
      return true;
    }
    return false;
  }

  const Program& program_;
  std::vector<std::size_t> at_;
  std::vector<std::vector<bool>> done_;
};

}  // namespace

bool is_compute(Op op) {
  return op == Op::forward || op == Op::backward || op == Op::backward_input || op == Op::backward_weight;
}
bool is_send(Op op) { return op == Op::send_forward || op == Op::send_backward; }
bool is_receive(Op op) { return op == Op::receive_forward || op == Op::receive_backward; }

Program insert_communication(const Program& compute) {
  Program program(compute.size());
  for (std::size_t stage = 0; stage < compute.size(); ++stage) {
    const bool first = stage == 0, last = stage + 1 == compute.size();
    for (const Instruction& instruction : compute[stage]) {
      MEGATRON_CHECK(is_compute(instruction.op) && instruction.chunk == 0, to_text(instruction),
                     ": passes of one chunk are expected");
      const bool forward = instruction.op == Op::forward;
      const bool messages = instruction.op != Op::backward_weight;
      const auto add = [&](Op op) { program[stage].push_back({op, instruction.micro_batch, 0}); };
      if (messages && (forward ? !first : !last)) add(forward ? Op::receive_forward : Op::receive_backward);
      program[stage].push_back(instruction);
      if (messages && (forward ? !last : !first)) add(forward ? Op::send_forward : Op::send_backward);
    }
  }
  return program;
}

void validate(const Program& program) {
  MEGATRON_CHECK(!program.empty(), "a program without stages");
  std::int64_t num_micro_batches = 0;
  bool training = false;
  for (const std::vector<Instruction>& list : program) {
    num_micro_batches = std::max<std::int64_t>(num_micro_batches, std::ssize(order_of(list, Op::forward)));
    training = training || std::any_of(list.begin(), list.end(),
                                       [](const Instruction& i) { return is_compute(i.op) && i.op != Op::forward; });
  }
  if (num_micro_batches == 0) fail(0, "no micro-batch");
  for (std::size_t stage = 0; stage < program.size(); ++stage) {
    check_passes(stage, program[stage], num_micro_batches, training);
    check_messages(stage, program.size(), program[stage]);
  }
  check_pairs(program);
  Rendezvous(program).run();
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

}  // namespace megatron::schedule
