#include "schedule/lazy_weights.h"

#include <algorithm>
#include <utility>

#include "schedule/pass_table.h"
#include "schedule/passes.h"

namespace megatron::schedule {
namespace {

constexpr double kNotDone = -1.0;
constexpr double kSlack = 1e-9;

class Completion {
 public:
  Completion(const Program& order, const LazyWeights& rules, std::int64_t m)
      : order_(order),
        rules_(rules),
        forward_ends_(order.placement, m, kNotDone),
        backward_ends_(order.placement, m, kNotDone),
        ranks_(order.lists.size()) {
    result_.program.placement = order.placement;
    result_.program.lists.resize(order.lists.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      result_.program.lists[rank].reserve(order.lists[rank].size() * 3 / 2);
  }

  std::optional<CompletedProgram> run() {
    for (std::size_t rank = ranks_.size(); rank-- > 0;) runnable_.push_back(rank);
    while (!runnable_.empty()) {
      const std::size_t rank = runnable_.back();
      runnable_.pop_back();
      if (!advance(rank)) return std::nullopt;
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      RankState& state = ranks_[rank];
      if (state.at < order_.lists[rank].size()) return std::nullopt;
      while (state.next_weight < state.inputs.size()) add_weight(rank);
      result_.longest_span = std::max(result_.longest_span, state.now - state.begin);
      result_.makespan = std::max(result_.makespan, state.now);
    }
    return std::move(result_);
  }

 private:
  struct RankState {
    std::size_t at = 0;  // in the order
    double now = 0.0, begin = kNotDone;
    double live = 0.0;                // stashes, by weight
    std::vector<Instruction> inputs;  // all I so far
    std::size_t next_weight = 0;      // the first of them without its W
  };

  void add_weight(std::size_t rank) {
    RankState& state = ranks_[rank];
    const Instruction& input = state.inputs[state.next_weight++];
    result_.program.lists[rank].push_back({Op::backward_weight, input.micro_batch, input.stage});
    state.now += times_of(input).weight_grad;
    state.live -= rules_.kept;
  }

  const spec::PipelineTimes& times_of(const Instruction& pass) const {
    return rules_.times[static_cast<std::size_t>(pass.stage)];
  }

  /// The next W fits into the time until `ready`.
  bool fits(const RankState& state, double ready) const {
    if (state.next_weight == state.inputs.size() || ready <= state.now + kSlack) return false;
    return ready - state.now >= rules_.fill * times_of(state.inputs[state.next_weight]).weight_grad - kSlack;
  }

  /// Runs a rank until it waits; false if memory cannot hold what it must do.
  bool advance(std::size_t rank) {
    RankState& state = ranks_[rank];
    for (; state.at < order_.lists[rank].size(); ++state.at) {
      const Instruction& pass = order_.lists[rank][state.at];
      if (pass.op == Op::forward) {
        while (state.live + 1.0 > rules_.capacity + kStashSlack && state.next_weight < state.inputs.size())
          add_weight(rank);
        if (state.live + 1.0 > rules_.capacity + kStashSlack) return false;
      }
      const double ready = ready_at(pass);
      if (ready == kNotDone) return true;
      while (fits(state, ready)) add_weight(rank);
      perform(rank, pass, std::max(ready, state.now));
    }
    return true;
  }

  void perform(std::size_t rank, const Instruction& pass, double begin) {
    RankState& state = ranks_[rank];
    const bool forward = pass.op == Op::forward;
    if (state.begin == kNotDone) state.begin = begin;
    state.now = begin + (forward ? times_of(pass).forward : times_of(pass).input_grad);
    result_.program.lists[rank].push_back(pass);
    (forward ? forward_ends_ : backward_ends_).at(pass) = state.now;
    state.live += forward ? 1.0 : rules_.kept - 1.0;
    if (!forward) state.inputs.push_back(pass);
    while (!forward && state.next_weight < state.inputs.size() &&
           (rules_.at_once || state.live > rules_.capacity + kStashSlack))
      add_weight(rank);
    const int target = forward ? pass.stage + 1 : pass.stage - 1;
    if (target < 0 || target >= order_.placement.num_stages()) return;
    const auto other = static_cast<std::size_t>(order_.placement.rank_of(target));
    if (other == rank || ranks_[other].at >= order_.lists[other].size()) return;
    if (order_.lists[other][ranks_[other].at] == Instruction{pass.op, pass.micro_batch, target})
      runnable_.push_back(other);
  }

  double ready_at(const Instruction& pass) {
    const bool forward = pass.op == Op::forward;
    const int source = forward ? pass.stage - 1 : pass.stage + 1;
    if (source < 0 || source >= order_.placement.num_stages()) return forward ? 0.0 : forward_ends_.at(pass);
    const double end = (forward ? forward_ends_ : backward_ends_).at(source, pass.micro_batch);
    if (end == kNotDone || order_.placement.rank_of(source) == order_.placement.rank_of(pass.stage)) return end;
    return end + rules_.message;
  }

  const Program& order_;
  const LazyWeights& rules_;
  PassTable<double> forward_ends_, backward_ends_;
  std::vector<RankState> ranks_;
  std::vector<std::size_t> runnable_;
  CompletedProgram result_;
};

}  // namespace

std::optional<CompletedProgram> complete_with_weights(const Program& order, const LazyWeights& rules) {
  std::int64_t m = 0;
  for (const Instruction& pass : order.lists.front()) m = std::max(m, pass.micro_batch + 1);
  return Completion(order, rules, m).run();
}

}  // namespace megatron::schedule
