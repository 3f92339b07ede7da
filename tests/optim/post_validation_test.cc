#include "optim/post_validation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "kernels/elementwise.h"
#include "made_parameter.h"
#include "support/run_ranks.h"

namespace megatron::optim {
namespace {

using testing::make_parallel;
using testing::run_mesh;

struct Outcome {
  std::vector<float> value, first, second;  // weight and moments
  std::int64_t num_updates = 0;
  bool skipped = false;
  double norm = 0.0;
  std::string bad;
  bool operator==(const Outcome&) const = default;
};

struct Steps {
  std::vector<Outcome> stages;
  int redone = 0;
};

/// Three steps on `stages` ranks with a matrix each. `spoil(stage, step)` is put into the gradient where it is not 0;
/// a rank counts as unhealthy where `healthy` says so.
Steps run_steps(int stages, double clip, bool ahead, DType dtype,
                const std::function<float(int, int)>& spoil = nullptr) {
  Steps run;
  run.stages.resize(static_cast<std::size_t>(stages));
  std::mutex mutex;
  run_mesh(make_parallel(1, stages), [&](mesh::Rank& rank) {
    const int stage = rank.mesh.pp.rank();
    Made made;
    nn::Parameter& w =
        made.add(made_parameter(rank.exec, str_cat("stage", stage), spec::replicated(2, 3, 5, 0), dtype));
    w.main_grad = rank.exec.zeros(w.value.shape(), DType::float32, MemoryKind::gradient);
    spec::OptimizerSpec spec;
    spec.clip_grad = clip;
    Optimizer optimizer(rank, made.all, spec);
    PostValidation validation(rank, optimizer);
    Outcome out;
    int redone = 0;
    for (int step = 0; step < 3; ++step) {
      for (std::int64_t i = 0; i < w.main_grad.numel(); ++i)
        w.main_grad.data<float>()[i] = made_value(100 * stage + 17 * step + i);
      if (spoil && spoil(stage, step) != 0.0F) w.main_grad.data<float>()[7] = spoil(stage, step);
      UpdateInput input{1e-2, 0.1, 4.0, 2.0};
      UpdateResult result;
      if (ahead) {
        StageOutcome outcome;
        outcome.mask_sum.add(4.0);
        input.token_sum = 0.0;
        validation.guess(input, outcome);
        validation.guess_was_wrong();
        result = validation.finish();
        redone += validation.redone_by_any() ? 1 : 0;
      } else {
        result = optimizer.step(input);
      }
      out.skipped = out.skipped || result.skipped;
      out.norm += std::isfinite(result.grad_norm) ? result.grad_norm : 0.0;
      out.bad += result.first_bad_gradient;
    }
    Tensor wide = rank.exec.empty(w.value.shape(), DType::float32);
    kernels::copy(rank.exec, w.value, wide);
    out.value = values_of(wide);
    const std::size_t moments = optimizer.states().size() - 2;
    out.first = values_of(optimizer.states()[moments].tensor);
    out.second = values_of(optimizer.states()[moments + 1].tensor);
    out.num_updates = optimizer.num_updates();
    const std::lock_guard<std::mutex> lock(mutex);
    run.stages[static_cast<std::size_t>(stage)] = out;
    run.redone = redone;
  });
  return run;
}

TEST(PostValidation, GivesTheBitsOfUpdatesAfterTheNorm) {
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (const int stages : {2, 4})
      for (const double clip : {0.0, 1e-2, 1e3}) {
        SCOPED_TRACE(str_cat(stages, " stages, clip ", clip));
        const Steps after = run_steps(stages, clip, false, dtype), ahead = run_steps(stages, clip, true, dtype);
        EXPECT_EQ(ahead.stages, after.stages);
        EXPECT_EQ(ahead.redone, clip == 1e-2 ? 3 : 0);
        EXPECT_EQ(after.stages[0].num_updates, 3);
      }
}

/// Also where the stages before have updated already; which of them did depends on the stage with the NaN.
TEST(PostValidation, NoStageKeepsTheUpdateOfAStepWithANan) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (int where = 0; where < 3; ++where) {
      SCOPED_TRACE(where);
      const auto spoil = [&](int stage, int step) { return stage == where && step == 1 ? bad : 0.0F; };
      const Steps after = run_steps(3, 0.05, false, DType::bfloat16, spoil);
      const Steps ahead = run_steps(3, 0.05, true, DType::bfloat16, spoil);
      EXPECT_EQ(ahead.stages, after.stages);
      EXPECT_EQ(after.stages[0].num_updates, 2);
      EXPECT_EQ(after.stages[0].bad, str_cat("stage", where));
      // Clipping redoes the other two; stage 0 guesses a NaN of its own.
      EXPECT_EQ(ahead.redone, where == 0 ? 2 : 3);
    }
}

TEST(PostValidation, AnUnhealthyStageOrNoTokenChangesNothing) {
  for (const bool healthy : {true, false})
    run_mesh(make_parallel(1, 2), [&](mesh::Rank& rank) {
      Made made;
      nn::Parameter& w = made.add(made_parameter(rank.exec, "w", 2, 2));
      for (std::int64_t i = 0; i < 4; ++i) w.value.data<float>()[i] = w.main_grad.data<float>()[i] = made_value(i);
      const std::vector<float> before = values_of(w.value);
      Optimizer optimizer(rank, made.all, spec::OptimizerSpec());
      PostValidation validation(rank, optimizer);
      StageOutcome outcome;
      if (!healthy) outcome.mask_sum.add(3.0);
      outcome.healthy = healthy || rank.mesh.pp.rank() == 0;
      validation.guess({1e-2, 0.0, 0.0, 1.0}, outcome);
      EXPECT_EQ(validation.updated(), !healthy && rank.mesh.pp.rank() == 0);
      validation.guess_was_wrong();
      EXPECT_TRUE(validation.finish().skipped);
      EXPECT_EQ(values_of(w.value), before);
      EXPECT_EQ(optimizer.num_updates(), 0);
      EXPECT_EQ(validation.token_sum(), healthy ? 0.0 : 3.0);
      EXPECT_EQ(validation.redone_by_any(), !healthy);
    });
}

}  // namespace
}  // namespace megatron::optim
