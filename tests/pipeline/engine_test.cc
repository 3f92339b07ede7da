#include "pipeline/engine.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "schedule/generators.h"
#include "schedule/passes.h"
#include "schedule/training_program.h"
#include "support/run_ranks.h"
#include "support/stage_fixture.h"
#include "toy_stage.h"

namespace megatron::pipeline {
namespace {

using schedule::Instruction;
using testing::make_parallel;
using testing::run_mesh;

constexpr std::int64_t kLayers = 5;

std::vector<nn::MicroBatch> toy_batches(std::int64_t count, std::int64_t length = 7) {
  std::vector<nn::MicroBatch> batches;
  for (std::int64_t i = 0; i < count; ++i) {
    batches.push_back(testing::make_batch(11, i, 1, length, 9));
    batches.back().index = i;
    nn::set_token_shard(batches.back(), 0, 1);
  }
  return batches;
}

spec::RunSpec toy_run() {
  spec::RunSpec run;
  run.model.hidden_size = ToyStage::kHidden;
  return run;
}

/// What all stages of a pipeline produced.
struct ToyResult {
  StepOutput last;  // of the last stage
  std::map<std::string, std::vector<double>> gradients;
};

/// With `verdict` each rank runs its repeatable front first; what starts again has had wrong weights until then.
ToyResult run_toy(const schedule::Program& program, std::int64_t m, std::uint64_t perturb_seed = 0,
                  std::optional<Interruption::Verdict> verdict = {}) {
  ToyResult result;
  std::mutex mutex;
  const auto batches = toy_batches(m);
  const spec::RunSpec run = toy_run();
  spec::ParallelSpec parallel = make_parallel(1, program.placement.num_ranks);
  parallel.virtual_chunks = program.placement.num_chunks;
  parallel.placement_kind = program.placement.kind;
  run_mesh(
      parallel,
      [&](mesh::Rank& rank) {
        ToyModel toy(rank, kLayers);
        Engine engine(rank, toy.model, run, {});
        const auto& list = program.lists[static_cast<std::size_t>(rank.mesh.pp.rank())];
        const auto scale_weights = [&](float factor) {
          for (nn::Parameter* p : toy.model.parameters())
            for (std::int64_t h = 0; h < ToyStage::kHidden; ++h) p->value.data<float>()[h] *= factor;
        };
        Interruption interruption;
        interruption.settle = [&] {
          if (verdict == Interruption::Verdict::start_again) scale_weights(0.25F);
          return *verdict;
        };
        if (verdict) {
          interruption.count = schedule::repeatable_front(program)[static_cast<std::size_t>(rank.mesh.pp.rank())];
          if (verdict == Interruption::Verdict::start_again) scale_weights(4.0F);
        }
        StepOutput output = engine.run_step(list, batches, nullptr, -1, verdict ? &interruption : nullptr);
        if (verdict == Interruption::Verdict::abandon) {
          EXPECT_TRUE(output.times.instructions.empty());
          output = engine.run_step(list, batches, nullptr);
        }
        for (int chunk = 0; chunk < toy.model.num_chunks(); ++chunk) EXPECT_EQ(toy.toy(chunk).num_stashes(), 0);
        EXPECT_EQ(output.peak_chunk_stashes, schedule::max_live_stashes(list));
        EXPECT_EQ(std::ssize(output.times.instructions), std::ssize(list));
        const std::lock_guard<std::mutex> lock(mutex);
        for (const nn::Parameter* p : toy.model.parameters())
          result.gradients[p->name] = testing::to_doubles(p->main_grad);
        if (rank.mesh.holds_last_stage()) result.last = output;
      },
      1, perturb_seed);
  return result;
}

/// The same in double, token by token.
ToyResult toy_oracle(std::int64_t m) {
  ToyResult result;
  for (std::int64_t l = 0; l < kLayers; ++l) result.gradients[str_cat("w", l)].assign(ToyStage::kHidden, 0.0);
  for (const nn::MicroBatch& batch : toy_batches(m))
    for (std::size_t t = 0; t < batch.ids.size(); ++t) {
      double loss = 0.0;
      for (std::int64_t h = 0; h < ToyStage::kHidden; ++h) {
        std::vector<double> x = {static_cast<double>(batch.ids[t]) / static_cast<double>(h + 1)};
        for (std::int64_t l = 0; l < kLayers; ++l) x.push_back(ToyStage::weight(l, h) * (x.back() + 1.0));
        loss += x.back() * static_cast<double>(batch.labels[t]);
        double dy = batch.loss_mask[t] * static_cast<double>(batch.labels[t]);
        for (std::int64_t l = kLayers; l-- > 0;) {
          result.gradients[str_cat("w", l)][static_cast<std::size_t>(h)] += dy * (x[static_cast<std::size_t>(l)] + 1.0);
          dy *= ToyStage::weight(l, h);
        }
      }
      result.last.loss_sum.add(loss * batch.loss_mask[t]);
      result.last.mask_sum.add(batch.loss_mask[t]);
      result.last.trained_tokens += batch.loss_mask[t] != 0.0F ? 1 : 0;
    }
  return result;
}

/// Every kind of schedule for `ranks` ranks, and Megatron-LM's interleaving where it exists for `m` micro-batches.
std::vector<schedule::Program> programs_of(int ranks, std::int64_t m) {
  std::vector<schedule::Program> programs = {schedule::one_f_one_b(ranks, m), schedule::gpipe({ranks}, m),
                                             schedule::gpipe({ranks, 3}, m),  schedule::zb_h1(ranks, m),
                                             schedule::zb_h2(ranks, m),       schedule::zb_v(ranks, m)};
  for (const int chunks : {2, 3})
    for (std::int64_t group = ranks; group <= m && ranks > 1; ++group)
      if (schedule::interleaving_problem(ranks, m, group).empty())
        programs.push_back(schedule::interleaved(ranks, chunks, m, group));
  return programs;
}

/// What runs before the weights are settled leaves no trace where it runs again, or not at all.
TEST(Engine, AnInterruptedStepGivesTheSameBits) {
  using Verdict = Interruption::Verdict;
  for (const int ranks : {2, 3})
    for (const schedule::Program& passes : programs_of(ranks, 5)) {
      const schedule::Program program = schedule::insert_communication(passes);
      const ToyResult plain = run_toy(program, 5);
      for (const Verdict verdict : {Verdict::go_on, Verdict::start_again, Verdict::abandon}) {
        const ToyResult other = run_toy(program, 5, 4711, verdict);
        EXPECT_EQ(other.gradients, plain.gradients) << static_cast<int>(verdict);
        EXPECT_EQ(other.last.loss_sum.value(), plain.last.loss_sum.value());
        EXPECT_EQ(other.last.trained_tokens, plain.last.trained_tokens);
      }
    }
}

TEST(Engine, EveryPipelineGivesTheBitsOfOneStage) {
  for (std::int64_t m = 1; m <= 6; ++m) {
    const ToyResult oracle = toy_oracle(m);
    const ToyResult one = run_toy(schedule::insert_communication(schedule::one_f_one_b(1, m)), m);
    EXPECT_NEAR(one.last.loss_sum.value(), oracle.last.loss_sum.value(), 1e-4 * std::abs(oracle.last.loss_sum.value()));
    EXPECT_EQ(one.last.mask_sum.value(), oracle.last.mask_sum.value());
    EXPECT_EQ(one.last.trained_tokens, oracle.last.trained_tokens);
    ASSERT_EQ(one.gradients.size(), static_cast<std::size_t>(kLayers));
    for (const auto& [name, values] : oracle.gradients)
      EXPECT_LT(testing::relative_max_error(one.gradients.at(name), values), 1e-5) << name;
    for (int stages = 1; stages <= 5; ++stages)
      for (const schedule::Program& compute : programs_of(stages, m)) {
        SCOPED_TRACE(str_cat(stages, " ranks of ", compute.placement.num_chunks, " stages, ", m, " micro-batches, ",
                             to_text(compute.lists.back().back())));
        const ToyResult many = run_toy(schedule::insert_communication(compute), m, /*perturb_seed=*/3);
        EXPECT_EQ(many.gradients, one.gradients);
        EXPECT_EQ(many.last.loss_sum.value(), one.last.loss_sum.value());
        EXPECT_EQ(many.last.mask_sum.value(), one.last.mask_sum.value());
        EXPECT_EQ(many.last.trained_tokens, one.last.trained_tokens);
        EXPECT_EQ(many.last.first_bad_tensor, "");
      }
  }
}

TEST(Engine, EvaluationKeepsNothing) {
  const auto batches = toy_batches(3);
  const spec::RunSpec run = toy_run();
  const double expected = run_toy(schedule::insert_communication(schedule::gpipe({1}, 3)), 3).last.loss_sum.value();
  run_mesh(make_parallel(1, 3), [&](mesh::Rank& rank) {
    ToyModel toy(rank, kLayers);
    ToyStage& stage = toy.stage;
    Engine engine(rank, toy.model, run, {});
    const auto program = schedule::insert_communication(schedule::forward_only({3}, 3));
    const StepOutput output =
        engine.run_step(program.lists[static_cast<std::size_t>(rank.mesh.pp.rank())], batches, nullptr);
    EXPECT_EQ(stage.most_stashes, 0);
    EXPECT_EQ(stage.modes, std::vector<nn::Mode>(3, nn::Mode::evaluate));
    if (rank.mesh.holds_last_stage()) {
      EXPECT_EQ(output.loss_sum.value(), expected);
    }
  });
}

/// The losses that a stage is told to have.
StepOutput losses_of_one_stage(const std::vector<std::vector<float>>& losses,
                               const std::vector<std::vector<float>>& masks, EngineOptions options = {}) {
  StepOutput output;
  const spec::RunSpec run = toy_run();
  run_mesh(make_parallel(1), [&](mesh::Rank& rank) {
    ToyModel toy(rank, 1);
    ToyStage& stage = toy.stage;
    stage.spoil_output = [&](std::int64_t i, Tensor& tensor) {
      std::copy(losses[static_cast<std::size_t>(i)].begin(), losses[static_cast<std::size_t>(i)].end(),
                tensor.data<float>());
    };
    auto batches = toy_batches(std::ssize(losses), std::ssize(losses[0]));
    for (std::size_t i = 0; i < batches.size(); ++i) batches[i].loss_mask = masks[i];
    Engine engine(rank, toy.model, run, options);
    output = engine.run_step(schedule::one_f_one_b(1, std::ssize(losses)).lists[0], batches, nullptr);
  });
  return output;
}

TEST(Engine, LossIsASumOverTrainedTokens) {
  // One trained token of loss 2 and three of loss 1: 1.25 per token, not the mean of the means.
  const StepOutput output = losses_of_one_stage({{9, 2, 9, 9}, {1, 9, 1, 1}}, {{0, 1, 0, 0}, {1, 0, 1, 1}});
  EXPECT_EQ(output.loss_sum.value() / output.mask_sum.value(), 1.25);
  EXPECT_EQ(output.trained_tokens, 4);
  const StepOutput weighted = losses_of_one_stage({{2, 8}}, {{0.5F, 0.25F}});
  EXPECT_EQ(weighted.loss_sum.value(), 3.0);
  EXPECT_EQ(weighted.mask_sum.value(), 0.75);
  EXPECT_EQ(weighted.trained_tokens, 2);
  // The sum is exact: the two large losses cancel and leave the small one.
  const StepOutput exact = losses_of_one_stage({{3e38F, 1e-30F, -3e38F}}, {{1, 1, 1}});
  EXPECT_EQ(exact.loss_sum.value(), static_cast<double>(1e-30F));
}

TEST(Engine, BadLossesAreNamedUnlessMasked) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  StepOutput output = losses_of_one_stage({{1, 2}, {1, kNan}, {kInf, 1}}, {{1, 1}, {1, 0}, {1, 1}});
  EXPECT_EQ(output.first_bad_tensor, "loss of micro-batch 2");
  output = losses_of_one_stage({{1, kNan}, {kInf, 2}}, {{1, 0}, {0, 1}});
  EXPECT_EQ(output.first_bad_tensor, "");
  EXPECT_EQ(output.loss_sum.value(), 3.0);
  EngineOptions unchecked;
  unchecked.check_for_nan = false;
  EXPECT_EQ(losses_of_one_stage({{kNan}}, {{1}}, unchecked).first_bad_tensor, "");
}

/// A NaN that one stage makes: that stage names it first, the step still ends everywhere.
TEST(Engine, BadTensorsOfStagesAreNamed) {
  const auto batches = toy_batches(4);
  const spec::RunSpec run = toy_run();
  const auto spoil_at = [](std::int64_t wanted) {
    return [wanted](std::int64_t i, Tensor& tensor) {
      if (i == wanted) tensor.data<float>()[tensor.numel() - 1] = std::numeric_limits<float>::quiet_NaN();
    };
  };
  for (const bool forward : {true, false}) {
    run_mesh(make_parallel(1, 3), [&](mesh::Rank& rank) {
      ToyModel toy(rank, kLayers);
      ToyStage& stage = toy.stage;
      if (rank.mesh.pp.rank() == 1) (forward ? stage.spoil_output : stage.spoil_gradient) = spoil_at(2);
      Engine engine(rank, toy.model, run, {});
      const auto program = schedule::insert_communication(schedule::one_f_one_b(3, 4));
      const StepOutput output =
          engine.run_step(program.lists[static_cast<std::size_t>(rank.mesh.pp.rank())], batches, nullptr);
      if (rank.mesh.pp.rank() == 1) {
        EXPECT_EQ(output.first_bad_tensor,
                  forward ? "output of stage 1 for micro-batch 2" : "input gradient of stage 1 for micro-batch 2");
      }
      if (rank.mesh.holds_last_stage()) {
        EXPECT_EQ(output.first_bad_tensor, forward ? "loss of micro-batch 2" : "");
      }
    });
  }
}

/// Passes everything on and writes down what ranks say they do.
class RecordingContext : public comm::RankContext {
 public:
  explicit RecordingContext(comm::RankContext& inner) : inner_(inner) {}
  int rank() const override { return inner_.rank(); }
  int world_size() const override { return inner_.world_size(); }
  int ranks_on_this_machine() const override { return inner_.ranks_on_this_machine(); }
  std::shared_ptr<comm::Communicator> create_group(const std::string& name, const std::vector<int>& members) override {
    return inner_.create_group(name, members);
  }
  comm::TrafficCounters& traffic() override { return inner_.traffic(); }
  void note_progress(std::string_view what, std::int64_t iteration) override {
    notes += str_cat(what, "@", iteration, " ");
  }
  void set_trace(Trace* trace) override { inner_.set_trace(trace); }
  std::string notes;

 private:
  comm::RankContext& inner_;
};

TEST(Engine, TellsWhatItDoes) {
  const auto batches = toy_batches(2);
  const spec::RunSpec run = toy_run();
  testing::run_ranks(2, [&](comm::RankContext& context) {
    RecordingContext recording(context);
    testing::with_rank(recording, make_parallel(1, 2), Device::cpu, 1, [&](mesh::Rank& rank) {
      ToyModel toy(rank, kLayers);
      Engine engine(rank, toy.model, run, {});
      const auto list =
          schedule::training_program(make_parallel(1, 2), 2).lists[static_cast<std::size_t>(rank.mesh.rank)];
      const StepOutput output = engine.run_step(list, batches, nullptr, 5);
      if (rank.mesh.rank == 1) {
        EXPECT_EQ(recording.notes, "1rf0@5 1F0@5 1B0@5 1sb0@5 1rf1@5 1F1@5 1B1@5 1sb1@5 ");
      }
      double before = 0.0;
      for (std::size_t i = 0; i < list.size(); ++i) {
        const InstructionTime& time = output.times.instructions[i];
        EXPECT_EQ(time.instruction, list[i]);
        EXPECT_LE(before, time.begin_seconds);
        EXPECT_LE(time.begin_seconds, time.end_seconds);
        before = time.end_seconds;
      }
      recording.notes.clear();
      engine.run_step(list, batches, nullptr);
      EXPECT_EQ(recording.notes, "");
    });
  });
}

TEST(Engine, LossScaleSeedsBackward) {
  const auto batches = toy_batches(1);
  const spec::RunSpec run = toy_run();
  run_mesh(make_parallel(1), [&](mesh::Rank& rank) {
    ToyModel plain_model(rank, kLayers), scaled_model(rank, kLayers);
    ToyStage &plain = plain_model.stage, &scaled = scaled_model.stage;
    EngineOptions options;
    Engine(rank, plain_model.model, run, options).run_step(schedule::gpipe({1}, 1).lists[0], batches, nullptr);
    options.backward_scale = 8.0;
    Engine(rank, scaled_model.model, run, options).run_step(schedule::gpipe({1}, 1).lists[0], batches, nullptr);
    for (std::size_t p = 0; p < plain.parameters().size(); ++p)
      for (std::int64_t h = 0; h < ToyStage::kHidden; ++h)
        EXPECT_EQ(scaled.parameters()[p]->main_grad.data<float>()[h],
                  8.0F * plain.parameters()[p]->main_grad.data<float>()[h]);
  });
}

TEST(Engine, ObserversSeeEachMicroBatch) {
  const auto batches = toy_batches(3);
  const spec::RunSpec run = toy_run();
  run_mesh(make_parallel(1, 2), [&](mesh::Rank& rank) {
    ToyModel toy(rank, kLayers);
    Engine engine(rank, toy.model, run, {});
    std::vector<std::int64_t> seen;
    engine.set_loss_observer([&](std::int64_t i, const Tensor& losses) {
      EXPECT_EQ(losses.numel(), batches[0].num_tokens);
      seen.push_back(i);
    });
    const auto program = schedule::evaluation_program(make_parallel(1, 2), 3);
    engine.run_step(program.lists[static_cast<std::size_t>(rank.mesh.rank)], batches, nullptr);
    EXPECT_EQ(seen, rank.mesh.holds_last_stage() ? (std::vector<std::int64_t>{0, 1, 2}) : std::vector<std::int64_t>{});
  });
}

TEST(Engine, WrongListsAndBatchesAreErrors) {
  const spec::RunSpec run = toy_run();
  run_mesh(make_parallel(1), [&](mesh::Rank& rank) {
    ToyModel toy(rank, kLayers);
    Engine engine(rank, toy.model, run, {});
    const auto refused = [&](const std::vector<Instruction>& list, const std::vector<nn::MicroBatch>& batches) {
      EXPECT_THROW(engine.run_step(list, batches, nullptr), Error);
    };
    auto batches = toy_batches(2);
    using schedule::Op;
    refused({{Op::forward, 2, 0}}, batches);
    refused({{Op::forward, 0, 1}}, batches);
    refused({{Op::backward, 0, 0}}, batches);
    refused({{Op::forward, 0, 0}, {Op::forward, 1, 0}, {Op::backward, 0, 0}}, batches);
    refused({{Op::receive_forward, 0, 0}, {Op::forward, 0, 0}}, batches);
    std::swap(batches[0], batches[1]);
    refused({{Op::forward, 0, 0}}, batches);
  });
}

/// On meta tensors the same list runs for any rank of any pipeline and counts its bytes.
TEST(Engine, RunsOnMeta) {
  const spec::RunSpec run = toy_run();
  constexpr std::int64_t kMicroBatches = 5, kLength = 7;
  for (int r = 0; r < 4; ++r)
    testing::run_meta(make_parallel(1, 4), r, [&](mesh::Rank& rank) {
      std::vector<nn::MicroBatch> batches(kMicroBatches, testing::meta_batch(1, kLength));
      for (std::int64_t i = 0; i < kMicroBatches; ++i) {
        batches[static_cast<std::size_t>(i)].index = i;
        nn::set_token_shard(batches[static_cast<std::size_t>(i)], 0, 1);
      }
      ToyModel toy(rank, kLayers);
      Engine engine(rank, toy.model, run, {});
      const auto list =
          schedule::training_program(make_parallel(1, 4), kMicroBatches).lists[static_cast<std::size_t>(r)];
      const StepOutput output = engine.run_step(list, batches, nullptr);
      EXPECT_EQ(output.trained_tokens, 0);
      EXPECT_EQ(output.first_bad_tensor, "");
      const std::int64_t neighbours = (r > 0 ? 1 : 0) + (r < 3 ? 1 : 0);
      EXPECT_EQ(rank.context.traffic().bytes["pp"]["send"],
                neighbours * kMicroBatches * kLength * ToyStage::kHidden * 4);
    });
}

}  // namespace
}  // namespace megatron::pipeline
