// The checks of passes.h.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "base/check.h"
#include "schedule/pass_table.h"
#include "schedule/passes.h"

namespace megatron::schedule {
namespace {

[[noreturn]] void fail(std::size_t rank, const std::string& what) {
  throw Error(str_cat("pipeline schedule, rank ", rank, ": ", what));
}

/// What a stage has done of one micro-batch.
struct Progress {
  bool forward = false, backward_input = false, done = false;
};

/// Micro-batch of the last pass of each kind on a stage.
struct LastOf {
  std::int64_t input = -1, weight = -1;
};

/// Checks that each instruction names a stage of its rank.
void check_places(const Program& program) {
  const spec::StagePlacement& placement = program.placement;
  for (std::size_t rank = 0; rank < program.lists.size(); ++rank)
    for (const Instruction& instruction : program.lists[rank]) {
      if (instruction.stage < 0 || instruction.stage >= placement.num_stages())
        fail(rank, str_cat(to_text(instruction), " is of stage ", instruction.stage, ", the pipeline has ",
                           placement.num_stages(), placement.num_stages() == 1 ? " stage" : " stages"));
      if (static_cast<std::size_t>(placement.rank_of(instruction.stage)) != rank)
        fail(rank, str_cat(to_text(instruction), " is of stage ", instruction.stage, ", which stands on rank ",
                           placement.rank_of(instruction.stage)));
    }
}

/// The micro-batches that each stage runs forward, sorted, each once.
std::vector<std::vector<std::int64_t>> forward_micro_batches(const Program& program) {
  std::vector<std::vector<std::int64_t>> seen(static_cast<std::size_t>(program.placement.num_stages()));
  for (const std::vector<Instruction>& list : program.lists)
    for (const Instruction& instruction : list)
      if (instruction.op == Op::forward && instruction.stage >= 0 && instruction.stage < std::ssize(seen))
        seen[static_cast<std::size_t>(instruction.stage)].push_back(instruction.micro_batch);
  for (std::vector<std::int64_t>& micro_batches : seen) {
    std::sort(micro_batches.begin(), micro_batches.end());
    micro_batches.erase(std::unique(micro_batches.begin(), micro_batches.end()), micro_batches.end());
  }
  return seen;
}

std::int64_t most_of(const std::vector<std::vector<std::int64_t>>& seen) {
  std::size_t most = 0;
  for (const std::vector<std::int64_t>& micro_batches : seen) most = std::max(most, micro_batches.size());
  return static_cast<std::int64_t>(most);
}

/// Checks that all stages run the same micro-batches 0 … m − 1 forward; returns m.
std::int64_t check_forwards(const Program& program) {
  const auto seen = forward_micro_batches(program);
  const std::int64_t m = most_of(seen);
  if (m == 0) fail(0, "no micro-batch");
  for (int stage = 0; stage < std::ssize(seen); ++stage) {
    const std::vector<std::int64_t>& micro_batches = seen[static_cast<std::size_t>(stage)];
    const auto rank = static_cast<std::size_t>(program.placement.rank_of(stage));
    for (const std::int64_t i : micro_batches)
      if (i < 0 || i >= m)
        fail(rank, str_cat(to_text({Op::forward, i, stage}), " is outside the ", m, " micro-batches"));
    for (std::int64_t i = 0; i < m; ++i)
      if (i >= std::ssize(micro_batches) || micro_batches[static_cast<std::size_t>(i)] != i)
        fail(rank, str_cat(to_text({Op::forward, i, stage}), " is missing"));
  }
  return m;
}

/// Checks what each stage does of each micro-batch, in the order of the lists.
class PassChecker {
 public:
  PassChecker(const Program& program, std::int64_t num_micro_batches)
      : program_(program),
        placement_(program.placement),
        num_micro_batches_(num_micro_batches),
        progress_(placement_, num_micro_batches_),
        last_(static_cast<std::size_t>(placement_.num_stages())) {
    for (const std::vector<Instruction>& list : program.lists)
      training_ = training_ || std::any_of(list.begin(), list.end(), [](const Instruction& i) {
                    return is_compute(i.op) && i.op != Op::forward;
                  });
  }

  void run() {
    for (std::size_t rank = 0; rank < program_.lists.size(); ++rank) {
      for (const Instruction& instruction : program_.lists[rank]) check(rank, instruction);
      if (training_) check_complete(rank);
    }
  }

 private:
  void check(std::size_t rank, const Instruction& instruction) {
    if (instruction.micro_batch < 0 || instruction.micro_batch >= num_micro_batches_)
      fail(rank, str_cat(to_text(instruction), " is outside the ", num_micro_batches_, " micro-batches"));
    if (!is_compute(instruction.op)) return;
    check_own_order(rank, instruction);
    check_source(rank, instruction);
    check_ascending(rank, instruction);
  }

  void check_own_order(std::size_t rank, const Instruction& instruction) {
    Progress& p = progress_.at(instruction);
    const auto refuse = [&](const char* why) { fail(rank, str_cat(to_text(instruction), why)); };
    if (instruction.op == Op::forward) {
      if (p.forward) refuse(" comes twice");
      p.forward = true;
      return;
    }
    if (!p.forward) refuse(" comes before its F");
    if (p.done) refuse(" comes after its backward pass was complete");
    if (is_input_backward(instruction.op)) {
      if (p.backward_input) refuse(" comes after its I");
      p.backward_input = true;
    } else if (!p.backward_input) {
      refuse(" comes before its I");
    }
    p.done = instruction.op != Op::backward_input;
  }

  /// A tensor of the same rank must have been made; those of other ranks are messages.
  void check_source(std::size_t rank, const Instruction& instruction) {
    if (instruction.op == Op::backward_weight) return;
    const bool forward = instruction.op == Op::forward;
    const int source = forward ? instruction.stage - 1 : instruction.stage + 1;
    if (source < 0 || source >= placement_.num_stages()) return;
    if (static_cast<std::size_t>(placement_.rank_of(source)) != rank) return;
    const Progress& p = progress_.at(source, instruction.micro_batch);
    const std::int64_t i = instruction.micro_batch;
    if (forward && !p.forward)
      fail(rank,
           str_cat(to_text(instruction), " comes before ", to_text({Op::forward, i, source}), ", which it needs"));
    if (!forward && !p.backward_input)
      fail(rank, str_cat(to_text(instruction), " comes before ", to_text({Op::backward, i, source}),
                         " (or I), which it needs"));
  }

  void check_ascending(std::size_t rank, const Instruction& instruction) {
    LastOf& last = last_[static_cast<std::size_t>(instruction.stage)];
    const std::int64_t i = instruction.micro_batch;
    const auto check = [&](std::int64_t& before) {
      if (i < before)
        fail(rank, str_cat(to_text(instruction), " comes after that of micro-batch ", before,
                           ": gradients are added in ascending order"));
      before = i;
    };
    if (is_input_backward(instruction.op)) check(last.input);
    if (instruction.op == Op::backward || instruction.op == Op::backward_weight) check(last.weight);
  }

  void check_complete(std::size_t rank) {
    for (int chunk = 0; chunk < placement_.num_chunks; ++chunk)
      for (std::int64_t i = 0; i < num_micro_batches_; ++i) {
        const int stage = placement_.stage_of(static_cast<int>(rank), chunk);
        const Progress& p = progress_.at(stage, i);
        if (!p.done)
          fail(rank, p.backward_input ? str_cat(to_text({Op::backward_weight, i, stage}), " is missing")
                                      : str_cat(to_text({Op::backward, i, stage}), " (or I and W) is missing"));
      }
  }

  const Program& program_;
  const spec::StagePlacement& placement_;
  std::int64_t num_micro_batches_;
  bool training_ = false;
  PassTable<Progress> progress_;
  std::vector<LastOf> last_;
};

/// The messages a pass needs: from a stage on another rank before it, to one after it.
struct Messages {
  bool receives = false, sends = false;
};

Messages messages_of(const spec::StagePlacement& placement, const Instruction& pass) {
  if (pass.op == Op::backward_weight) return {};
  const int rank = placement.rank_of(pass.stage);
  const auto elsewhere = [&](int stage) {
    return stage >= 0 && stage < placement.num_stages() && placement.rank_of(stage) != rank;
  };
  const bool before = elsewhere(pass.stage - 1), after = elsewhere(pass.stage + 1);
  return pass.op == Op::forward ? Messages{before, after} : Messages{after, before};
}

/// Places in a list, 1-based; 0 where there is none.
struct Standing {
  std::size_t forward = 0, backward = 0, sf = 0, rf = 0, sb = 0, rb = 0;
  std::size_t& of(Op op) {
    return op == Op::forward            ? forward
           : op == Op::send_forward     ? sf
           : op == Op::receive_forward  ? rf
           : op == Op::send_backward    ? sb
           : op == Op::receive_backward ? rb
                                        : backward;
  }
};

/// Each pass has its receive before it and its send after it, once, and nothing else is sent or received.
class MessageChecker {
 public:
  MessageChecker(const Program& program, std::int64_t num_micro_batches)
      : program_(program), standing_(program.placement, num_micro_batches) {}

  void run() {
    for (std::size_t rank = 0; rank < program_.lists.size(); ++rank) {
      note_places(rank);
      for (const Instruction& instruction : program_.lists[rank]) {
        if (instruction.op == Op::backward_weight) continue;
        if (is_compute(instruction.op))
          check_pass(rank, instruction);
        else
          check_message(rank, instruction);
      }
    }
  }

 private:
  void note_places(std::size_t rank) {
    const std::vector<Instruction>& list = program_.lists[rank];
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].op == Op::backward_weight) continue;
      std::size_t& place = standing_.at(list[i]).of(list[i].op);
      if (place != 0) fail(rank, str_cat(to_text(list[i]), " comes twice"));
      place = i + 1;
    }
  }

  void check_pass(std::size_t rank, const Instruction& pass) {
    const Messages wanted = messages_of(program_.placement, pass);
    const bool forward = pass.op == Op::forward;
    const Op receive = forward ? Op::receive_forward : Op::receive_backward;
    const Op send = forward ? Op::send_forward : Op::send_backward;
    for (const auto& [needed, op] : {std::pair{wanted.receives, receive}, std::pair{wanted.sends, send}})
      if (needed && standing_.at(pass).of(op) == 0)
        fail(rank, str_cat(to_text(pass), " needs ", to_text({op, pass.micro_batch, pass.stage})));
  }

  void check_message(std::size_t rank, const Instruction& message) {
    const bool forward = message.op == Op::send_forward || message.op == Op::receive_forward;
    const Op pass = forward ? Op::forward : Op::backward;
    const Messages wanted = messages_of(program_.placement, {pass, message.micro_batch, message.stage});
    if (!(is_send(message.op) ? wanted.sends : wanted.receives))
      fail(rank, str_cat(to_text(message), " has no neighbour on another rank"));
    Standing& standing = standing_.at(message);
    const std::size_t own = standing.of(message.op), of_pass = standing.of(pass);
    if (of_pass == 0) fail(rank, str_cat(to_text(message), " belongs to no pass"));
    if (is_send(message.op) ? own > of_pass : own < of_pass) return;
    fail(rank, str_cat(to_text(message), is_send(message.op) ? " comes before " : " comes after ",
                       to_text(program_.lists[rank][of_pass - 1])));
  }

  const Program& program_;
  PassTable<Standing> standing_;
};

/// Messages of each pair of ranks in the order in which they are sent and received.
void check_pairs(const Program& program) {
  using Channel = std::pair<int, int>;
  std::map<Channel, std::vector<Instruction>> sent, received;
  for (const std::vector<Instruction>& list : program.lists)
    for (const Instruction& instruction : list) {
      if (is_compute(instruction.op)) continue;
      const Instruction other = counterpart(instruction);
      const int here = program.placement.rank_of(instruction.stage), there = program.placement.rank_of(other.stage);
      if (is_send(instruction.op)) sent[{here, there}].push_back(other);
      if (is_receive(instruction.op)) received[{there, here}].push_back(instruction);
    }
  for (const auto& [channel, receives] : received) {
    const std::vector<Instruction>& sends = sent[channel];
    for (std::size_t i = 0; i < receives.size(); ++i)
      if (i >= sends.size() || !(sends[i] == receives[i]))
        fail(static_cast<std::size_t>(channel.second),
             str_cat(to_text(receives[i]), " is not in the order of the sends of rank ", channel.first,
                     i < sends.size() ? str_cat(", which sends ", to_text(counterpart(sends[i])), " then") : ""));
  }
}

/// Runs all lists side by side; sends never wait.
class DryRun {
 public:
  DryRun(const Program& program, std::int64_t num_micro_batches)
      : program_(program),
        at_(program.lists.size(), 0),
        forward_(program.placement, num_micro_batches, false),
        backward_(program.placement, num_micro_batches, false) {}

  void run() {
    for (std::size_t rank = program_.lists.size(); rank-- > 0;) runnable_.push_back(rank);
    while (!runnable_.empty()) {
      const std::size_t rank = runnable_.back();
      runnable_.pop_back();
      advance(rank);
    }
    for (std::size_t rank = 0; rank < program_.lists.size(); ++rank)
      if (at_[rank] < program_.lists[rank].size()) report(rank);
  }

 private:
  void advance(std::size_t rank) {
    const std::vector<Instruction>& list = program_.lists[rank];
    for (; at_[rank] < list.size(); ++at_[rank]) {
      const Instruction& instruction = list[at_[rank]];
      if (is_receive(instruction.op) && !table_of(instruction.op).at(instruction)) return;
      if (!is_send(instruction.op)) continue;
      const Instruction other = counterpart(instruction);
      table_of(other.op).at(other) = true;
      const auto receiver = static_cast<std::size_t>(program_.placement.rank_of(other.stage));
      const std::size_t waits_at = at_[receiver];
      if (waits_at < program_.lists[receiver].size() && program_.lists[receiver][waits_at] == other)
        runnable_.push_back(receiver);
    }
  }

  /// The receive at which a rank is stuck, and where its sender is stuck.
  [[noreturn]] void report(std::size_t rank) {
    const Instruction& receive = program_.lists[rank][at_[rank]];
    const Instruction send = counterpart(receive);
    const auto sender = static_cast<std::size_t>(program_.placement.rank_of(send.stage));
    fail(rank, str_cat("deadlock: ", to_text(receive), before_pass(rank), " waits for ", to_text(send), ", but rank ",
                       sender, " waits at ", to_text(program_.lists[sender][at_[sender]]), before_pass(sender)));
  }

  std::string before_pass(std::size_t rank) {
    const std::vector<Instruction>& list = program_.lists[rank];
    for (std::size_t i = at_[rank]; i < list.size(); ++i)
      if (is_compute(list[i].op)) return str_cat(" (before ", to_text(list[i]), ")");
    return "";
  }

  /// Which receives have their message.
  PassTable<char>& table_of(Op receive) { return receive == Op::receive_forward ? forward_ : backward_; }

  const Program& program_;
  std::vector<std::size_t> at_, runnable_;
  PassTable<char> forward_, backward_;
};

}  // namespace

std::int64_t num_micro_batches(const Program& program) { return most_of(forward_micro_batches(program)); }

void validate_passes(const Program& program) {
  MEGATRON_CHECK(!program.lists.empty(), "a program without ranks");
  MEGATRON_CHECK_EQ(std::ssize(program.lists), std::int64_t{program.placement.num_ranks}, "lists of a program");
  check_places(program);
  PassChecker(program, check_forwards(program)).run();
}

void validate(const Program& program) {
  validate_passes(program);
  const std::int64_t m = num_micro_batches(program);
  MessageChecker(program, m).run();
  check_pairs(program);
  DryRun(program, m).run();
}

}  // namespace megatron::schedule
