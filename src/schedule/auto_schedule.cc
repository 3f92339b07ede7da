#include "schedule/auto_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "schedule/empty_program.h"
#include "schedule/generators.h"
#include "schedule/lazy_weights.h"
#include "schedule/passes.h"
#include "schedule/simulate.h"

namespace megatron::schedule {
namespace {

/// Passes that the search may try, all candidates together: well under a second.
constexpr std::int64_t kMostTriedPasses = 4'000'000;
constexpr double kSlack = 1e-9;

/// With one stage per rank: rank r warms up with round(base + slope·(p − 1 − r)) forward passes, then I and F in turn.
struct Slope {
  double slope;
  int base;
};

Program sloped_order(const AutoRequest& request, const Slope& s) {
  const std::int64_t m = request.num_micro_batches;
  const int p = request.placement.num_ranks;
  Program order = empty_program(request.placement, m);
  for (int rank = 0; rank < p; ++rank) {
    std::vector<Instruction>& list = order.lists[static_cast<std::size_t>(rank)];
    const auto most = static_cast<std::int64_t>(request.memory_limit * p + kStashSlack);
    const std::int64_t wanted = std::llround(s.base + s.slope * (p - 1 - rank));
    std::int64_t next = 0;
    for (; next < std::min({m, most, wanted}); ++next) list.push_back({Op::forward, next, rank});
    for (std::int64_t i = 0; i < m; ++i) {
      list.push_back({Op::backward_input, i, rank});
      if (next < m) list.push_back({Op::forward, next++, rank});
    }
  }
  return order;
}

/// In V placement: the way of a micro-batch as a pattern that repeats after the work of one. Steps from rank to rank of
/// the first F, the second F, the second I and the first I; 1 is as fast as possible, each more a sixth of the work.
struct Pattern {
  std::array<int, 4> steps;
  int turn;  // sixths between the last F and the first I, the first included
};

Program pattern_order(const AutoRequest& request, const spec::PipelineTimes& times, const Pattern& pattern) {
  const int p = request.placement.num_ranks;
  const std::int64_t m = request.num_micro_batches;
  const double period = times.forward + times.input_grad + times.weight_grad, sixth = period / 6.0;
  const double f = times.forward / 2.0, i = times.input_grad / 2.0;
  const auto step = [&](int which, double pass) {
    return pass + times.message + (pattern.steps[static_cast<std::size_t>(which)] - 1) * sixth;
  };
  const double first = step(0, f), second = step(1, f), back = step(2, i), home = step(3, i);
  const double tip = (p - 1) * first + f, top = tip + (p - 1) * second + f + (pattern.turn - 1) * sixth;
  const double end = top + (p - 1) * back + i;
  Program order = empty_program(request.placement, m);
  for (int rank = 0; rank < p; ++rank) {
    const std::array<double, 4> offsets = {rank * first, tip + (p - 1 - rank) * second, top + rank * back,
                                           end + (p - 1 - rank) * home};
    const std::array<Instruction, 4> passes = {{{Op::forward, 0, rank},
                                                {Op::forward, 0, 2 * p - 1 - rank},
                                                {Op::backward_input, 0, 2 * p - 1 - rank},
                                                {Op::backward_input, 0, rank}}};
    std::array<std::int64_t, 4> next = {0, 0, 0, 0};
    std::vector<Instruction>& list = order.lists[static_cast<std::size_t>(rank)];
    for (std::int64_t n = 0; n < 4 * m; ++n) {
      std::size_t earliest = 4;
      double when = 0.0;
      for (std::size_t k = 0; k < 4; ++k) {
        const double at = offsets[k] + static_cast<double>(next[k]) * period;
        if (next[k] == m || (earliest < 4 && at >= when - kSlack * period)) continue;
        earliest = k;
        when = at;
      }
      list.push_back({passes[earliest].op, next[earliest]++, passes[earliest].stage});
    }
  }
  return order;
}

/// F and I of a program.
Program without_weights(Program program) {
  for (std::vector<Instruction>& list : program.lists)
    std::erase_if(list, [](const Instruction& pass) { return pass.op == Op::backward_weight; });
  return program;
}

class Search {
 public:
  explicit Search(const AutoRequest& request) : request_(request) {
    const double chunks = request.placement.num_chunks;
    const spec::PipelineTimes& t = request.times;
    rules_.times = request.stage_times;
    if (rules_.times.empty())
      rules_.times.assign(static_cast<std::size_t>(request.placement.num_stages()),
                          {t.forward / chunks, t.input_grad / chunks, t.weight_grad / chunks, t.message});
    rules_.message = t.message;
    rules_.at_once = request.whole_backward;
    rules_.capacity = request.memory_limit * request.placement.num_stages();
    rules_.kept = request.kept_after_input_grad;
    left_ = kMostTriedPasses / (3 * request.placement.num_stages() * request.num_micro_batches);
    if (!request.stage_times.empty()) left_ /= 2;  // there are two searches
  }

  Program run() {
    if (request_.placement.kind == spec::PlacementKind::v)
      try_patterns();
    else
      try_slopes();
    MEGATRON_CHECK(best_.has_value(), "no schedule of ", request_.placement.num_ranks, " ranks within ",
                   request_.memory_limit);
    return std::move(best_->program);
  }

 private:
  /// False once enough was tried.
  bool attempt(const Program& order, double fill) {
    rules_.fill = fill;
    std::optional<CompletedProgram> found = complete_with_weights(order, rules_);
    if (found && (!best_ || is_better(*found))) best_ = std::move(found);
    return --left_ > 0 || !best_;
  }

  bool is_better(const CompletedProgram& found) const {
    const double least = kSlack * best_->makespan;
    if (found.longest_span < best_->longest_span - least) return true;
    return found.longest_span < best_->longest_span + least && found.makespan < best_->makespan - least;
  }

  void try_slopes() {
    for (const double fill : {0.5, 1.0, 0.25})
      for (const int base : {1, 2, 3})
        for (const double slope : {1.0, 2.0, 2.25, 1.5, 1.75, 1.25, 2.5, 3.0})
          if (!attempt(sloped_order(request_, {slope, base}), fill)) return;
  }

  void try_patterns() {
    const spec::PipelineTimes equal;
    const Program by_hand = without_weights(zb_v(request_.placement.num_ranks, request_.num_micro_batches));
    if (request_.memory_limit >= 1.0 && !attempt(by_hand, 1.0)) return;
    // The smallest memory of equal times first: with it there is always a result.
    for (const std::array<int, 4>& steps : {std::array{1, 2, 1, 2}, std::array{1, 1, 1, 1}})
      for (const int turn : {1, 2, 3})
        for (const spec::PipelineTimes& times : {request_.times, equal})
          if (!attempt(pattern_order(request_, times, {steps, turn}), 1.0)) return;
    for (int code = 0; code < 256; ++code) {
      const std::array<int, 4> steps = {1 + code / 64, 1 + code / 16 % 4, 1 + code / 4 % 4, 1 + code % 4};
      const Program order = pattern_order(request_, request_.times, {steps, 1});
      if (!attempt(order, 1.0) || !attempt(order, 0.5)) return;
    }
  }

  const AutoRequest& request_;
  LazyWeights rules_;
  std::int64_t left_ = 0;
  std::optional<CompletedProgram> best_;
};

std::int64_t smallest_stashes(const spec::StagePlacement& placement, std::int64_t num_micro_batches) {
  const int p = placement.num_ranks;
  if (placement.kind == spec::PlacementKind::v)
    return std::min<std::int64_t>(2 * num_micro_batches, 2 * ((p - 1 + 2) / 3) + 2);
  return std::min<std::int64_t>(num_micro_batches, p);
}

void check_times(const spec::PipelineTimes& t) {
  if (!(t.forward > 0 && t.input_grad > 0 && t.weight_grad >= 0 && t.message >= 0) ||
      !std::isfinite(t.forward + t.input_grad + t.weight_grad + t.message))
    throw ConfigError("times of a pipeline: F and I must be above 0, W and communication at least 0");
}

void check_request(const AutoRequest& request) {
  const spec::StagePlacement& placement = request.placement;
  const bool v = placement.kind == spec::PlacementKind::v;
  MEGATRON_CHECK_EQ(placement.num_chunks, v ? 2 : 1, "virtual stages per rank of zb-auto");
  check_times(request.times);
  for (const spec::PipelineTimes& times : request.stage_times) check_times(times);
  if (!request.stage_times.empty())
    MEGATRON_CHECK_EQ(std::ssize(request.stage_times), placement.num_stages(), "times of the virtual stages");
  if (!(request.kept_after_input_grad >= 0.0 && std::isfinite(request.kept_after_input_grad)))
    throw ConfigError("what a stash keeps after its input gradient must be at least 0");
  const double least = smallest_memory_limit(placement, request.num_micro_batches);
  if (request.memory_limit >= least - kStashSlack / placement.num_stages()) return;
  const std::int64_t stashes = smallest_stashes(placement, request.num_micro_batches);
  std::string text = str_cat("--pipeline-memory-limit ", request.memory_limit, ": the smallest feasible limit of ",
                             placement.num_ranks, " ranks is ", limit_text(least), " (", stashes, " stashes of ",
                             v ? "half a rank" : "a rank", ", 1F1B has ", placement.num_stages(), ")");
  const spec::StagePlacement other{placement.num_ranks, 2, spec::PlacementKind::v};
  const double with_v = smallest_memory_limit(other, request.num_micro_batches);
  if (!v && with_v < least) text += str_cat("; with two stages per rank in V placement ", limit_text(with_v));
  throw ConfigError(text);
}

}  // namespace

double smallest_memory_limit(const spec::StagePlacement& placement, std::int64_t num_micro_batches) {
  return static_cast<double>(smallest_stashes(placement, num_micro_batches)) / placement.num_stages();
}

std::string limit_text(double limit) { return str_cat(std::ceil(limit * 1e4 - 1e-6) / 1e4); }

Program auto_schedule(const AutoRequest& request) {
  check_request(request);
  Program best = Search(request).run();
  if (request.stage_times.empty()) return best;
  // W in the gaps that equal stages would have may do better on unequal ones.
  AutoRequest even = request;
  even.stage_times.clear();
  Program other = Search(even).run();
  Durations durations;
  durations.message = request.times.message;
  for (const spec::PipelineTimes& t : request.stage_times)
    durations.of_stage.push_back({t.forward, t.input_grad, t.weight_grad});
  return simulate(other, durations).longest_span() < simulate(best, durations).longest_span() ? other : best;
}

}  // namespace megatron::schedule
