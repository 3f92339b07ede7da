#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/small_run.h"
#include "support/temporary_folder.h"

namespace megatron::train {
namespace {

using megatron::testing::complete;
using megatron::testing::folder_bytes;
using megatron::testing::Layout;
using megatron::testing::layout_text;
using megatron::testing::make_sequences;
using megatron::testing::relative_rms;
using megatron::testing::small_run;
using megatron::testing::SmallOptions;
using megatron::testing::SmallResult;
using megatron::testing::TemporaryFolder;
using megatron::testing::train_small;

SmallOptions options_for(std::int64_t seq_length = 16) {
  SmallOptions options;
  options.train = make_sequences(512, seq_length, 61, [](std::int64_t sample, std::int64_t place) {
    return (sample + place) % 4 == 0 ? 0.0F : 1.0F;
  });
  options.valid = make_sequences(64, seq_length, 61);
  return options;
}

spec::RunSpec run_with_schedule(bool llama, std::int64_t iterations) {
  spec::RunSpec run = small_run(llama);
  run.model.hidden_dropout = 0.1;
  run.batch.train_iters = iterations;
  run.batch.eval_interval = 2;
  run.batch.eval_iters = 1;
  run.optimizer.lr_decay_style = spec::DecayStyle::cosine;
  run.optimizer.lr_decay_iters = 10;
  run.optimizer.lr_warmup_iters = 1;
  return run;
}

TEST(Resume, SameLayoutContinuesBitForBit) {
  for (const bool llama : {false, true}) {
    for (const Layout& layout : {Layout{}, Layout{2, 2, 1, true, 2}, Layout{1, 2, 2, false, 1}}) {
      SCOPED_TRACE(layout_text(layout));
      const TemporaryFolder folder;
      const SmallResult straight = train_small(complete(run_with_schedule(llama, 6), layout), options_for());
      spec::RunSpec first = run_with_schedule(llama, 6);
      first.checkpoint.save = folder.path();
      first.batch.exit_interval = 3;
      const SmallResult half = train_small(complete(first, layout), options_for());
      EXPECT_EQ(half.outcome.saved_directory, folder / "iter_0000003");
      spec::RunSpec second = run_with_schedule(llama, 6);
      second.checkpoint.load = folder.path();
      const SmallResult rest = train_small(complete(second, layout), options_for());
      ASSERT_EQ(rest.steps.size(), 3U);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(rest.steps[i].iteration, straight.steps[i + 3].iteration);
        EXPECT_EQ(rest.steps[i].consumed_samples, straight.steps[i + 3].consumed_samples);
        EXPECT_EQ(rest.steps[i].loss, straight.steps[i + 3].loss);
        EXPECT_EQ(rest.steps[i].grad_norm, straight.steps[i + 3].grad_norm);
        EXPECT_EQ(rest.steps[i].lr, straight.steps[i + 3].lr);
      }
      EXPECT_EQ(rest.weights, straight.weights);
      // Evaluations at 2, 4, 6 and the end: the resumed run goes on where the validation samples stood.
      ASSERT_EQ(straight.evaluations.size(), 4U);
      ASSERT_EQ(rest.evaluations.size(), 3U);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(rest.evaluations[i].loss, straight.evaluations[i + 1].loss);
    }
  }
}

TEST(Resume, AnyOtherLayoutContinuesTheSameRun) {
  const TemporaryFolder folder;
  spec::RunSpec first = run_with_schedule(false, 6);
  first.checkpoint.save = folder.path();
  first.batch.exit_interval = 3;
  train_small(complete(first, {2, 2, 1, true, 2}), options_for());
  const SmallResult straight = train_small(complete(run_with_schedule(false, 6), {2, 2, 1, true, 2}), options_for());
  for (const Layout& layout : {Layout{1, 1, 1, false, 4}, Layout{4, 1, 1, true, 1}, Layout{1, 2, 2, false, 2},
                               Layout{2, 1, 2, false, 4}, Layout{1, 1, 4, false, 1}}) {
    SCOPED_TRACE(layout_text(layout));
    spec::RunSpec second = run_with_schedule(false, 6);
    second.checkpoint.load = folder.path();
    const SmallResult rest = train_small(complete(second, layout), options_for());
    ASSERT_EQ(rest.steps.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(rest.steps[i].loss / straight.steps[i + 3].loss, 1.0, 1e-5);
      EXPECT_NEAR(rest.steps[i].grad_norm / straight.steps[i + 3].grad_norm, 1.0, 1e-4);
    }
    for (const auto& [name, values] : straight.weights) {
      if (name.find("linear_qkv.bias") == std::string::npos) {
        EXPECT_LT(relative_rms(rest.weights.at(name), values), 1e-4) << name;
      }
    }
  }
}

/// A checkpoint of one layout string goes on at another, also in V placement, with the same bits.
TEST(Resume, AnotherPipelineLayoutContinuesBitForBit) {
  const TemporaryFolder folder;
  const auto laid_out = [](const char* layout, spec::PipelineSchedule schedule, int chunks) {
    spec::RunSpec run = run_with_schedule(false, 6);
    run.parallel.schedule = schedule;
    run.parallel.virtual_chunks = chunks;
    if (schedule == spec::PipelineSchedule::zb_v) run.parallel.placement_kind = spec::PlacementKind::v;
    if (*layout != '\0') run.parallel.pipeline_layout = layout;
    return run;
  };
  using spec::PipelineSchedule;
  const SmallResult straight =
      train_small(complete(laid_out("", PipelineSchedule::one_f_one_b, 1), {1, 2, 1, false, 1}), options_for());
  spec::RunSpec first = laid_out("E|t|t|L", PipelineSchedule::one_f_one_b, 1);
  first.checkpoint.save = folder.path();
  first.batch.exit_interval = 3;
  train_small(complete(first, {1, 4, 1, false, 1}), options_for());
  const Layout two = {1, 2, 1, false, 1}, four = {1, 4, 1, false, 1};
  for (const auto& [run, layout] : {std::pair{laid_out("E|t||t||||L", PipelineSchedule::zb_v, 2), four},
                                    std::pair{laid_out("Et||t|L", PipelineSchedule::interleaved, 2), two},
                                    std::pair{laid_out("", PipelineSchedule::one_f_one_b, 1), two}}) {
    spec::RunSpec second = run;
    second.checkpoint.load = folder.path();
    const SmallResult rest = train_small(complete(second, layout), options_for());
    ASSERT_EQ(rest.steps.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(rest.steps[i].loss, straight.steps[i + 3].loss);
    EXPECT_EQ(rest.weights, straight.weights);
  }
}

TEST(Resume, EqualRunsWriteEqualFilesUnderEveryLayoutTheSameNames) {
  const TemporaryFolder a, b, c;
  spec::RunSpec run = run_with_schedule(true, 2);
  run.checkpoint.save = a.path();
  train_small(complete(run, {2, 1, 2, true, 1}), options_for());
  run.checkpoint.save = b.path();
  train_small(complete(run, {2, 1, 2, true, 1}), options_for());
  run.checkpoint.save = c.path();
  train_small(complete(run, {1, 2, 1, false, 2}), options_for());
  const auto files = folder_bytes(a.path());
  EXPECT_GE(files.size(), 4U);
  EXPECT_EQ(files, folder_bytes(b.path()));
  // Another layout: the same description, files of the same names and sizes.
  const auto others = folder_bytes(c.path());
  ASSERT_EQ(others.size(), files.size());
  for (const auto& [name, bytes] : files) {
    ASSERT_TRUE(others.count(name)) << name;
    EXPECT_EQ(others.at(name).size(), bytes.size()) << name;
    if (name.find("state.json") != std::string::npos) {
      EXPECT_EQ(others.at(name), bytes);
    }
  }
}

/// Whatever state an optimizer keeps, it is saved and found again: the resumed run has the bits of the straight one,
/// and on another layout its numbers.
TEST(Resume, EveryOptimizerContinues) {
  struct Case {
    const char* name;
    spec::OptimizerKind kind;
    bool decoupled = true, nesterov = false;
  };
  for (const Case& c :
       {Case{"adam", spec::OptimizerKind::adam, false}, Case{"sgd", spec::OptimizerKind::sgd, true, true},
        Case{"lion", spec::OptimizerKind::lion}, Case{"muon", spec::OptimizerKind::muon}}) {
    SCOPED_TRACE(c.name);
    spec::RunSpec run = run_with_schedule(true, 4);
    run.optimizer.kind = c.kind;
    run.optimizer.decoupled_weight_decay = c.decoupled;
    run.optimizer.sgd_nesterov = c.nesterov;
    run.optimizer.lr = c.kind == spec::OptimizerKind::sgd ? 0.1 : 1e-4;
    const Layout layout = {2, 1, 2, true, 1};
    const TemporaryFolder folder;
    const SmallResult straight = train_small(complete(run, layout), options_for());
    spec::RunSpec first = run;
    first.checkpoint.save = folder.path();
    first.batch.exit_interval = 2;
    train_small(complete(first, layout), options_for());
    run.checkpoint.load = folder.path();
    const SmallResult rest = train_small(complete(run, layout), options_for());
    ASSERT_EQ(rest.steps.size(), 2U);
    EXPECT_EQ(rest.weights, straight.weights);
    const SmallResult other = train_small(complete(run, {1, 2, 1, false, 2}), options_for());
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(rest.steps[i].loss, straight.steps[i + 2].loss);
      EXPECT_NEAR(other.steps[i].loss / straight.steps[i + 2].loss, 1.0, 1e-5);
    }
  }
}

/// A batch that changes is a function of the samples trained: a run stopped in the middle of the ramp goes on with it.
TEST(Resume, AGrowingBatchGoesOnWhereItStood) {
  spec::RunSpec run = run_with_schedule(false, 6);
  run.optimizer.lr_decay_iters = 6;
  run.batch.global_batch_size = 4;
  run.batch.batch_steps = {{0, 2}, {8, 4}};
  const TemporaryFolder folder;
  const SmallResult straight = train_small(complete(run, {2, 2, 1, true, 1}), options_for());
  spec::RunSpec first = run;
  first.checkpoint.save = folder.path();
  first.batch.exit_interval = 3;
  const SmallResult half = train_small(complete(first, {2, 2, 1, true, 1}), options_for());
  run.checkpoint.load = folder.path();
  const SmallResult rest = train_small(complete(run, {2, 2, 1, true, 1}), options_for());
  const auto sizes = [](const SmallResult& result) {
    std::vector<std::int64_t> list;
    for (const StepReport& step : result.steps) list.push_back(step.global_batch);
    return list;
  };
  EXPECT_EQ(sizes(straight), (std::vector<std::int64_t>{2, 2, 2, 2, 4, 4}));
  EXPECT_EQ(sizes(half), (std::vector<std::int64_t>{2, 2, 2}));
  EXPECT_EQ(sizes(rest), (std::vector<std::int64_t>{2, 4, 4}));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rest.steps[i].loss, straight.steps[i + 3].loss);
    EXPECT_EQ(rest.steps[i].lr, straight.steps[i + 3].lr);
    EXPECT_EQ(rest.steps[i].consumed_samples, straight.steps[i + 3].consumed_samples);
  }
  EXPECT_EQ(rest.weights, straight.weights);
  EXPECT_EQ(straight.outcome.consumed_samples, 16);
}

TEST(Resume, AnotherGlobalBatchKeepsTheSamplePosition) {
  const TemporaryFolder folder;
  spec::RunSpec first = small_run(false);
  first.batch.train_iters = 3;
  first.checkpoint.save = folder.path();
  train_small(complete(first, {}), options_for());
  spec::RunSpec second = first;
  second.batch.global_batch_size = 4;
  second.batch.train_iters = 5;
  second.checkpoint.load = folder.path();
  second.checkpoint.save.reset();
  second.optimizer.override_opt_param_scheduler = true;
  std::vector<std::int64_t> first_samples;
  const SmallResult rest = train_small(complete(second, {}), options_for());
  ASSERT_EQ(rest.steps.size(), 2U);
  EXPECT_EQ(rest.steps[0].consumed_samples, 24 + 4);
  EXPECT_EQ(rest.steps[1].consumed_samples, 24 + 8);
  bool told = false;
  for (const std::string& line : rest.lines) told = told || line.find("next sample index 24") != std::string::npos;
  EXPECT_TRUE(told);
}

TEST(Resume, FinetuneTakesWeightsAlone) {
  const TemporaryFolder folder;
  spec::RunSpec first = small_run(true);
  first.checkpoint.save = folder.path();
  const SmallResult trained = train_small(complete(first, {}), options_for());
  spec::RunSpec second = first;
  second.checkpoint = {};
  second.checkpoint.load = folder.path();
  second.checkpoint.finetune = true;
  second.batch.train_iters = 0;
  const SmallResult loaded = train_small(complete(second, {2, 1, 1, false, 1}), options_for());
  EXPECT_EQ(loaded.weights, trained.weights);
  EXPECT_EQ(loaded.outcome.iteration, 0);
  EXPECT_EQ(loaded.outcome.consumed_samples, 0);
}

TEST(Resume, AnotherModelIsRefusedNamingOptionAndBothValues) {
  const TemporaryFolder folder;
  spec::RunSpec first = small_run(true);
  first.batch.train_iters = 1;
  first.checkpoint.save = folder.path();
  train_small(complete(first, {}), options_for());
  spec::RunSpec second = first;
  second.checkpoint = {};
  second.checkpoint.load = folder.path();
  second.model.num_layers = 3;
  second.model.rotary_base = 5000;
  try {
    train_small(complete(second, {}), options_for());
    FAIL() << "was accepted";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("--num-layers: the checkpoint has 2, this run 3"), std::string::npos) << text;
    EXPECT_NE(text.find("--rotary-base: the checkpoint has 10000, this run 5000"), std::string::npos) << text;
  }
}

TEST(Resume, AnotherScheduleIsRefusedUnlessAskedFor) {
  const TemporaryFolder folder;
  spec::RunSpec first = run_with_schedule(false, 3);
  first.checkpoint.save = folder.path();
  train_small(complete(first, {}), options_for());
  spec::RunSpec second = run_with_schedule(false, 5);
  second.checkpoint.load = folder.path();
  second.optimizer.lr = 5e-4;
  EXPECT_THROW(train_small(complete(second, {}), options_for()), ConfigError);
  second.optimizer.override_opt_param_scheduler = true;
  const SmallResult own = train_small(complete(second, {}), options_for());
  second.optimizer.override_opt_param_scheduler = false;
  second.optimizer.use_checkpoint_opt_param_scheduler = true;
  const SmallResult stored = train_small(complete(second, {}), options_for());
  EXPECT_NEAR(own.steps[0].lr / stored.steps[0].lr, 5e-4 / 2e-3, 1e-12);
}

TEST(Resume, MissingMomentsAreRefusedUnlessNotAskedFor) {
  const TemporaryFolder folder;
  spec::RunSpec first = run_with_schedule(false, 3);
  first.checkpoint.save = folder.path();
  first.checkpoint.no_save_optim = true;
  train_small(complete(first, {}), options_for());
  spec::RunSpec second = run_with_schedule(false, 5);
  second.checkpoint.load = folder.path();
  try {
    train_small(complete(second, {}), options_for());
    FAIL() << "a run went on without its moments";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("holds no optimizer state"), std::string::npos) << error.what();
  }
  second.checkpoint.no_load_optim = true;
  const SmallResult rest = train_small(complete(second, {}), options_for());
  EXPECT_EQ(rest.steps[0].iteration, 4);
  EXPECT_GT(rest.steps[0].lr, 0.0);
}

TEST(Resume, MomentsOfAnotherOptimizerAreRefusedInOneLine) {
  const TemporaryFolder folder;
  spec::RunSpec first = run_with_schedule(false, 3);
  first.checkpoint.save = folder.path();
  train_small(complete(first, {}), options_for());
  spec::RunSpec second = run_with_schedule(false, 5);
  second.checkpoint.load = folder.path();
  second.optimizer.kind = spec::OptimizerKind::lion;
  try {
    train_small(complete(second, {}), options_for());
    FAIL() << "Adam's moments were taken for Lion's";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("written with --optimizer adam, this run has lion"), std::string::npos)
        << error.what();
  }
  second.checkpoint.no_load_optim = true;
  EXPECT_EQ(train_small(complete(second, {}), options_for()).steps[0].iteration, 4);
}

TEST(Resume, OneFlippedBitIsNotLoaded) {
  const TemporaryFolder folder;
  spec::RunSpec run = small_run(false);
  run.batch.train_iters = 1;
  run.checkpoint.save = folder / "ck";
  train_small(complete(run, {}), options_for());
  run.checkpoint.load = run.checkpoint.save;
  run.checkpoint.save.reset();
  run.batch.train_iters = 2;
  for (const char* file : {"model-00001.safetensors", "optimizer-00001.safetensors"}) {
    std::fstream bytes(folder / (std::string("ck/iter_0000001/") + file),
                       std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(-3, std::ios::end);
    const auto at = bytes.tellg();
    const auto good = static_cast<char>(bytes.peek());
    const auto put = [&](char byte) { bytes.seekp(at), bytes.put(byte), bytes.flush(); };
    put(static_cast<char>(good ^ 1));
    try {
      train_small(complete(run, {2, 1, 1, false, 1}), options_for());
      ADD_FAILURE() << file << ": accepted";
    } catch (const IoError& error) {
      EXPECT_NE(std::string(error.what()).find("the file is damaged"), std::string::npos) << error.what();
    }
    put(good);
  }
  EXPECT_EQ(train_small(complete(run, {}), options_for()).steps.size(), 1U);
}

TEST(Resume, AFolderThatCannotBeWrittenIsToldBeforeTheFirstStep) {
  const TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  spec::RunSpec run = small_run(false);
  run.batch.train_iters = 1;
  run.checkpoint.save = folder / "file/ck";
  SmallResult result;
  EXPECT_THROW(result = train_small(complete(run, {}), options_for()), IoError);
  EXPECT_TRUE(result.steps.empty());
}

TEST(Resume, CheckpointsWithoutPointerAreNotIgnored) {
  const TemporaryFolder folder;
  spec::RunSpec run = small_run(false);
  run.batch.train_iters = 1;
  run.checkpoint.save = folder.path();
  train_small(complete(run, {}), options_for());
  std::filesystem::remove(folder / "latest_checkpointed_iteration.txt");
  run.checkpoint.load = folder.path();
  EXPECT_THROW(train_small(complete(run, {}), options_for()), IoError);
  std::filesystem::remove_all(folder / "iter_0000001");
  EXPECT_EQ(train_small(complete(run, {}), options_for()).steps.size(), 1U);  // an empty folder is a fresh start
  run.checkpoint.exit_on_missing_checkpoint = true;
  std::filesystem::remove_all(folder / "iter_0000001");
  std::filesystem::remove(folder / "latest_checkpointed_iteration.txt");
  EXPECT_THROW(train_small(complete(run, {}), options_for()), IoError);
}

TEST(Resume, AnUnfinishedSaveIsIgnoredAndTold) {
  const TemporaryFolder folder;
  spec::RunSpec run = small_run(false);
  run.batch.train_iters = 2;
  run.checkpoint.save = folder.path();
  train_small(complete(run, {}), options_for());
  std::filesystem::create_directory(folder / "iter_0000004.tmp");
  std::ofstream(folder / "iter_0000004.tmp/model-00001.safetensors") << "half";
  run.checkpoint.load = folder.path();
  run.batch.train_iters = 4;
  const SmallResult rest = train_small(complete(run, {}), options_for());
  EXPECT_EQ(rest.steps.front().iteration, 3);
  bool told = false;
  for (const std::string& line : rest.lines)
    told = told || line.find("iter_0000004.tmp: a save that did not finish") != std::string::npos;
  EXPECT_TRUE(told);
  EXPECT_TRUE(std::filesystem::exists(folder / "iter_0000004/manifest.json"));
}

TEST(Resume, PipelineTrainsEvaluatesSavesAndResumes) {
  const TemporaryFolder folder;
  spec::RunSpec run = run_with_schedule(true, 3);
  run.checkpoint.save = folder.path();
  run.checkpoint.save_interval = 2;
  const SmallResult first = train_small(complete(run, {1, 2, 1, false, 1}), options_for());
  EXPECT_TRUE(std::filesystem::exists(folder / "iter_0000002/manifest.json"));
  EXPECT_TRUE(std::filesystem::exists(folder / "iter_0000003/manifest.json"));
  run.checkpoint.load = folder.path();
  run.batch.train_iters = 5;
  const SmallResult second = train_small(complete(run, {1, 2, 1, false, 1}), options_for());
  EXPECT_EQ(second.steps.front().iteration, 4);
  EXPECT_EQ(second.evaluations.size(), 2U);  // at 4 and at the end
}

}  // namespace
}  // namespace megatron::train
