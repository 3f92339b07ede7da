#include "data/build.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "data/batch.h"
#include "data/indexed_dataset.h"
#include "data/split_builder.h"
#include "temporary_folder.h"

namespace megatron::data {
namespace {

using testing::TemporaryFolder;
using Ints = std::vector<std::int64_t>;

/// `documents` documents of `length` tokens that count up modulo `vocab`.
void write_counting(const std::string& prefix, std::int64_t documents, std::int64_t length, std::int64_t vocab = 50) {
  IndexedDatasetWriter writer(prefix, TokenType::uint16);
  std::int64_t next = 0;
  for (std::int64_t d = 0; d < documents; ++d) {
    Ints tokens;
    for (std::int64_t i = 0; i < length; ++i) tokens.push_back(next++ % vocab);
    writer.add_sequence(tokens);
    writer.end_document();
  }
  writer.finish();
}

BuildOptions options_for(std::int64_t train, std::int64_t valid = 0, std::int64_t test = 0) {
  BuildOptions options;
  options.seq_length = 8;
  options.requested = {train, valid, test};
  return options;
}

template <typename Function>
std::string error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string build_error(const spec::DataSpec& spec, const BuildOptions& options) {
  return error_of([&] { build_datasets(spec, options); });
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(BuildDatasets, OneFileThreeSplits) {
  const TemporaryFolder folder;
  write_counting(folder / "a", 100, 21);
  spec::DataSpec spec;
  spec.data_path = {folder / "a"};
  spec.split = "8,1,1";
  const Datasets datasets = build_datasets(spec, options_for(30, 4, 2));
  ASSERT_TRUE(datasets.train && datasets.valid && datasets.test);
  EXPECT_EQ(datasets.train->size(), (80 * 21 - 1) / 8);
  EXPECT_EQ(datasets.valid->size(), (10 * 21 - 1) / 8);
  ASSERT_EQ(datasets.report.sources.size(), 3U);
  const SourceReport& train = datasets.report.sources[0];
  EXPECT_EQ(train.documents, 80);
  EXPECT_EQ(train.tokens, 80 * 21);
  EXPECT_EQ(train.samples, 30);
  EXPECT_DOUBLE_EQ(train.epochs, 30.0 * 8 / (80 * 21));
  const std::string text = datasets.report.text();
  EXPECT_TRUE(contains(text, "train") && contains(text, folder / "a") && contains(text, "100.0%")) << text;
}

TEST(BuildDatasets, RunsOfAnyLengthShareOneOrder) {
  const TemporaryFolder folder;
  write_counting(folder / "a", 20, 33);
  spec::DataSpec spec;
  spec.data_path = {folder / "a"};
  spec.split = "1,0,0";
  const Datasets one = build_datasets(spec, options_for(40)), again = build_datasets(spec, options_for(40));
  BuildOptions other = options_for(40);
  other.seed = 4321;
  const Datasets reseeded = build_datasets(spec, other);
  bool differs = false;
  for (std::int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(one.train->get(i).tokens, again.train->get(i).tokens);
    differs = differs || one.train->get(i).tokens != reseeded.train->get(i).tokens;
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(one.valid, nullptr);
  EXPECT_TRUE(contains(one.report.text(), "validation is disabled: it has no share of the data"));
}

TEST(BuildDatasets, DataThatRunOutAreRepeatedInANewOrder) {
  const TemporaryFolder folder;
  write_counting(folder / "a", 1, 81, 1000);
  spec::DataSpec spec;
  spec.data_path = {folder / "a"};
  spec.split = "1,0,0";
  const Datasets datasets = build_datasets(spec, options_for(20));
  ASSERT_GE(datasets.train->size(), 20);
  std::set<Ints> first;
  for (std::int64_t i = 0; i < 10; ++i) first.insert(datasets.train->get(i).tokens);
  EXPECT_EQ(first.size(), 10U);
  EXPECT_NEAR(datasets.report.sources[0].epochs, 2.0, 0.05);
}

TEST(BuildDatasets, WeightedBlend) {
  const TemporaryFolder folder;
  write_counting(folder / "a", 50, 21, 10);
  write_counting(folder / "b", 50, 21, 10);
  spec::DataSpec spec;
  spec.data_path = {"3", folder / "a", "1", folder / "b"};
  spec.split = "1,0,0";
  const Datasets datasets = build_datasets(spec, options_for(80));
  EXPECT_EQ(datasets.train->size(), 80);
  ASSERT_EQ(datasets.report.sources.size(), 2U);
  EXPECT_EQ(datasets.report.sources[0].samples, 60);
  EXPECT_DOUBLE_EQ(datasets.report.sources[0].share, 0.75);
  EXPECT_EQ(datasets.report.sources[1].samples, 20);
}

TEST(BuildDatasets, PathsPerSplitUseWholeFiles) {
  const TemporaryFolder folder;
  write_counting(folder / "a", 10, 21);
  write_counting(folder / "b", 5, 21);
  spec::DataSpec spec;
  spec.train_data_path = {folder / "a"};
  spec.valid_data_path = {folder / "b"};
  const Datasets datasets = build_datasets(spec, options_for(5, 5, 5));
  EXPECT_EQ(datasets.train->size(), (210 - 1) / 8);
  EXPECT_EQ(datasets.valid->size(), (105 - 1) / 8);
  EXPECT_EQ(datasets.test, nullptr);
}

TEST(BuildDatasets, MockData) {
  spec::DataSpec spec;
  spec.mock_data = true;
  BuildOptions options = options_for(10, 2, 2);
  options.vocab_size = 1000;
  const Datasets datasets = build_datasets(spec, options);
  ASSERT_TRUE(datasets.train && datasets.valid && datasets.test);
  EXPECT_EQ(datasets.report.sources[0].sequences, 33333);
  const Sample sample = datasets.train->get(0);
  EXPECT_EQ(sample.tokens.size(), 8U);
  EXPECT_EQ(sample.tokens[1], sample.labels[0]);
}

TEST(BuildDatasets, IdsOutsideTheVocabularyAreRefused) {
  const TemporaryFolder folder;
  {
    IndexedDatasetWriter writer(folder / "a", TokenType::uint16);
    for (const Ints& tokens : {Ints(20, 3), Ints{1, 2, 41, 4, 5, 6, 7, 8, 9}}) {
      writer.add_sequence(tokens);
      writer.end_document();
    }
    writer.finish();
  }
  spec::DataSpec spec;
  spec.data_path = {folder / "a"};
  spec.split = "1,0,0";
  BuildOptions options = options_for(2);
  options.vocab_size = 37;
  const std::string message = build_error(spec, options);
  EXPECT_TRUE(contains(message, (folder / "a.bin") + ": document 1, position 2: token id 41")) << message;
  EXPECT_TRUE(contains(message, "vocabulary of 37")) << message;
  options.vocab_size = 42;
  EXPECT_EQ(build_error(spec, options), "");
}

TEST(BuildDatasets, TokenizerLargerThanTheVocabulary) {
  const auto tokenizer = tokenizer::create_tokenizer("NullTokenizer", {41, {}, {}});
  spec::DataSpec spec;
  spec.mock_data = true;
  BuildOptions options = options_for(2);
  options.tokenizer = tokenizer.get();
  options.vocab_size = 37;
  const std::string message = build_error(spec, options);
  EXPECT_TRUE(contains(message, "41") && contains(message, "37")) << message;
}

TEST(BuildDatasets, RefusesByName) {
  const TemporaryFolder folder;
  write_counting(folder / "four", 1, 4);
  write_counting(folder / "ten", 10, 21);
  spec::DataSpec spec;
  EXPECT_TRUE(contains(build_error(spec, options_for(1)), "--data-path"));
  spec.data_path = {folder / "four"};
  spec.split = "1,0,0";
  BuildOptions options = options_for(1);
  options.seq_length = 4;
  EXPECT_TRUE(contains(build_error(spec, options), "needs at least 5")) << build_error(spec, options);
  EXPECT_TRUE(contains(build_error(spec, options), "has 4 tokens"));
  options.requested.train.reset();
  EXPECT_TRUE(contains(build_error(spec, options), "needs at least 5 tokens, has 4"));
  // An empty split of which samples are asked.
  spec.data_path = {folder / "ten"};
  spec.split = "98,1,1";
  EXPECT_EQ(build_error(spec, options_for(5, 2)), "");  // as the default split: a note
  spec.split_given = true;
  const std::string empty = build_error(spec, options_for(5, 2));
  EXPECT_TRUE(contains(empty, (folder / "ten") + ": the valid split has 0 sequences")) << empty;
  EXPECT_EQ(build_error(spec, options_for(5, 0)), "");
  // A member of an unweighted blend without samples.
  spec.data_path = {folder / "ten", folder / "four", folder / "ten"};
  spec.split = "1,0,0";
  EXPECT_TRUE(contains(build_error(spec, options_for(5)), (folder / "four") + ": the train split yields no sample"));
  // An unweighted blend of which more is asked than it holds.
  spec.data_path = {folder / "ten", folder / "ten"};
  EXPECT_TRUE(contains(build_error(spec, options_for(1000)), "give weights"));
  spec.mock_data = true;
  EXPECT_TRUE(contains(build_error(spec, options_for(5)), "exclude each other"));
  spec = {};
  spec.data_path = {folder / "missing"};
  EXPECT_TRUE(contains(build_error(spec, options_for(5)), "missing.idx"));
  spec.data_path = {folder / "ten"};
  spec.split = "-1,1,0";
  EXPECT_TRUE(contains(build_error(spec, options_for(5)), "field '-1'"));
  spec.split = "1,0,0";
  spec.eod_mask_loss = true;
  EXPECT_TRUE(contains(build_error(spec, options_for(5)), "--eod-mask-loss"));
}

TEST(RequestedSamples, AsTheReference) {
  spec::BatchSpec batch;
  batch.global_batch_size = 8;
  batch.train_iters = 100;
  batch.eval_iters = 10;
  batch.eval_interval = 30;
  const RequestedSamples requested = requested_samples(batch);
  EXPECT_EQ(requested.train, 800);
  EXPECT_EQ(requested.valid, (100 / 30 + 1) * 10 * 8);
  EXPECT_EQ(requested.test, 80);
  batch.train_iters.reset();
  batch.train_samples = 1000;
  batch.eval_global_batch_size = 4;
  EXPECT_EQ(requested_samples(batch).train, 1000);
  EXPECT_EQ(requested_samples(batch).valid, (125 / 30 + 1) * 10 * 4);
  batch.eval_interval.reset();
  EXPECT_EQ(requested_samples(batch).valid, 40);
}

TEST(AssembleBatch, RowsInSampleOrder) {
  const TemporaryFolder folder;
  write_counting(folder / "a", 10, 21);
  spec::DataSpec spec;
  spec.data_path = {folder / "a"};
  spec.split = "1,0,0";
  spec.reset_attention_mask = spec.reset_position_ids = true;
  const auto tokenizer = tokenizer::create_tokenizer("NullTokenizer", {50, 5, {}});
  BuildOptions options = options_for(20);
  options.tokenizer = tokenizer.get();
  const Datasets datasets = build_datasets(spec, options);
  const auto order = make_order(spec, *datasets.train, 2, 2);
  const Batch batch = assemble_batch(*datasets.train, *order, 3, 4);
  EXPECT_EQ(batch.num_samples, 4);
  EXPECT_EQ(batch.seq_length, 8);
  ASSERT_EQ(batch.tokens.size(), 32U);
  std::size_t sequence = 0;
  for (std::int64_t b = 0; b < 4; ++b) {
    const Sample sample = datasets.train->get(3 + b);
    for (std::size_t i = 0; i < 8; ++i) {
      const std::size_t row = static_cast<std::size_t>(b) * 8 + i;
      EXPECT_EQ(batch.tokens[row], sample.tokens[i]);
      EXPECT_EQ(batch.labels[row], sample.labels[i]);
      EXPECT_EQ(batch.position_ids[row], sample.position_ids[i]);
      EXPECT_EQ(batch.sample_index[row], 3 + b);
      EXPECT_EQ(batch.row_position[row], static_cast<std::int64_t>(i));
    }
    for (std::size_t s = 0; s + 1 < sample.sequence_starts.size(); ++s, ++sequence)
      EXPECT_EQ(batch.sequence_starts[sequence], 8 * b + sample.sequence_starts[s]);
  }
  EXPECT_EQ(batch.sequence_starts.size(), sequence + 1);
  EXPECT_EQ(batch.sequence_starts.back(), 32);
  EXPECT_EQ(batch.loss_mask, std::vector<float>(32, 1.0F));
  EXPECT_THROW(assemble_batch(*datasets.train, *order, datasets.train->size(), 1), Error);

  // Beyond the end every row is there, with its place, and trains nothing.
  const Batch last = assemble_batch(*datasets.train, *order, 3, 4, 5);
  const Sample first = datasets.train->get(0);
  ASSERT_EQ(last.tokens.size(), 32U);
  for (std::size_t row = 0; row < 32; ++row) {
    EXPECT_EQ(last.tokens[row], row < 16 ? batch.tokens[row] : first.tokens[row % 8]);
    EXPECT_EQ(last.loss_mask[row], row < 16 ? 1.0F : 0.0F);
    EXPECT_EQ(last.row_position[row], batch.row_position[row]);
  }
}

// The same global samples whatever the layout.
TEST(MicroBatchRange, LayoutsCoverTheSameSamples) {
  for (const auto& [mbs, dp] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {2, 1}, {1, 4}, {2, 4}, {4, 2}}) {
    std::set<std::int64_t> seen;
    for (std::int64_t m = 0; m < 40 / (mbs * dp); ++m)
      for (std::int64_t rank = 0; rank < dp; ++rank) {
        const SampleRange range = micro_batch_range(100, m, mbs, rank, dp);
        for (std::int64_t i = 0; i < range.count; ++i) EXPECT_TRUE(seen.insert(range.first + i).second);
      }
    EXPECT_EQ(seen.size(), 40U);
    EXPECT_EQ(*seen.begin(), 100);
    EXPECT_EQ(*seen.rbegin(), 139);
  }
}

TEST(BuildDatasets, PathsInFiles) {
  const TemporaryFolder folder;
  write_counting(folder / "a", 100, 21);
  write_counting(folder / "b", 50, 21);
  spec::DataSpec direct, listed, split;
  direct.data_path = {"0.3", folder / "a", "0.7", folder / "b"};
  listed.data_args_path = folder / "paths.txt";
  testing::write_file(folder / "paths.txt", "0.3 " + (folder / "a") + "\n\t0.7  " + (folder / "b") + "\n");
  const Datasets one = build_datasets(direct, options_for(40, 4, 2)),
                 two = build_datasets(listed, options_for(40, 4, 2));
  ASSERT_EQ(one.train->size(), two.train->size());
  for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ(one.train->get(i).tokens, two.train->get(i).tokens);

  split.per_split_data_args_path = folder / "split.json";
  testing::write_file(folder / "split.json", "{\"train\": [0.3, \"" + (folder / "a") + "\", \"0.7\", \"" +
                                                 (folder / "b") + "\"], \"valid\": \"" + (folder / "b") + "\"}");
  const Datasets three = build_datasets(split, options_for(40, 4, 2));
  ASSERT_TRUE(three.train && three.valid);
  EXPECT_FALSE(three.test);
  ASSERT_EQ(three.report.sources.size(), 3U);
  EXPECT_EQ(three.report.sources[2].documents, 50);
  testing::write_file(folder / "split.json", "{\"training\": []}");
  EXPECT_TRUE(contains(build_error(split, options_for(1)), "key \"training\"; known are train, valid, test"));
  testing::write_file(folder / "split.json", "{");
  EXPECT_TRUE(contains(build_error(split, options_for(1)), "--per-split-data-args-path"));
  listed.data_args_path = folder / "missing";
  EXPECT_TRUE(contains(build_error(listed, options_for(1)), "--data-args-path " + (folder / "missing")));
  listed.data_path = {folder / "a"};
  EXPECT_TRUE(contains(build_error(listed, options_for(1)), "exclude each other"));
}

TEST(BuildDatasets, FullValidationTakesEverythingOnce) {
  const TemporaryFolder folder;
  write_counting(folder / "a", 100, 21);
  spec::DataSpec spec;
  spec.data_path = {folder / "a"};
  spec.split = "8,2,0";
  spec.full_validation = true;
  const Datasets datasets = build_datasets(spec, options_for(30, 4));
  EXPECT_EQ(datasets.valid->size(), (20 * 21 - 1) / 8);
  EXPECT_NEAR(datasets.report.sources[1].epochs, 1.0, 0.02);
  EXPECT_FALSE(build_datasets(spec, options_for(30, 0)).valid) << "nothing is asked of it";
}

TEST(BuildDatasets, SeveralValidationSets) {
  const TemporaryFolder folder;
  write_counting(folder / "a", 100, 21);
  write_counting(folder / "b", 50, 21);
  spec::DataSpec spec;
  spec.train_data_path = {folder / "a"};
  spec.valid_data_path = {folder / "a", folder / "b"};
  spec.full_validation = spec.multiple_validation_sets = true;
  const Datasets datasets = build_datasets(spec, options_for(30, 4));
  EXPECT_FALSE(datasets.valid);
  ASSERT_EQ(datasets.valid_sets.size(), 2U);
  EXPECT_EQ(datasets.valid_sets[1].name, folder / "b");
  EXPECT_EQ(datasets.valid_sets[0].dataset->size(), (100 * 21 - 1) / 8);
  EXPECT_EQ(datasets.valid_sets[1].dataset->size(), (50 * 21 - 1) / 8);
  spec.valid_data_path = {"1", folder / "a", "2", folder / "b"};
  EXPECT_TRUE(contains(build_error(spec, options_for(30, 4)), "leave out the weights"));
}

TEST(BuildDatasets, IndicesDependNeitherOnThreadsNorOnACache) {
  const TemporaryFolder folder;
  spec::DataSpec spec;
  for (int i = 0; i < 7; ++i) {
    write_counting(folder / std::to_string(i), 20 + i, 11 + i);
    spec.data_path.push_back(std::to_string(i + 1));
    spec.data_path.push_back(folder / std::to_string(i));
  }
  const Datasets plain = build_datasets(spec, options_for(200));
  spec.num_dataset_builder_threads = 4;
  const Datasets threads = build_datasets(spec, options_for(200));
  spec.data_cache_path = folder / "cache";
  const Datasets written = build_datasets(spec, options_for(200)), read = build_datasets(spec, options_for(200));
  for (const Datasets* other : {&threads, &written, &read}) {
    ASSERT_EQ(other->train->size(), plain.train->size());
    EXPECT_EQ(other->report.notes, plain.report.notes);
    for (std::int64_t i = 0; i < 200; ++i) EXPECT_EQ(other->train->get(i).tokens, plain.train->get(i).tokens);
  }
}

TEST(DataReport, FiveLinesBeforeTheFirstStep) {
  const TemporaryFolder folder;
  write_counting(folder / "a", 75, 21);
  write_counting(folder / "b", 25, 100);
  spec::DataSpec spec;
  spec.data_path = {"3", folder / "a", "1", folder / "b"};
  spec.split = "1,0,0";
  const std::string text = build_datasets(spec, options_for(80)).report.five_lines();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4) << text;
  EXPECT_TRUE(
      contains(text, "data: train 100 documents, 4,075 tokens, 80 samples = 0.16 epochs; valid none; test none\n"))
      << text;
  EXPECT_TRUE(contains(text, "sources: " + (folder / "a") + " 75.0% (0.30 epochs), " + (folder / "b") + " 25.0% (0.06"))
      << text;
  EXPECT_TRUE(contains(text, "document lengths: 21 to 100 tokens, mean 40.8; <32 75%, <128 100%\n")) << text;
  EXPECT_TRUE(contains(text, "first sample: ")) << text;
  EXPECT_TRUE(contains(text, "notes: validation is disabled: it has no share of the data; test is")) << text;
}

TEST(MakeOrder, RefusesStartsThatCannotBe) {
  spec::DataSpec spec;
  spec.mock_data = true;
  BuildOptions options = options_for(10);
  options.vocab_size = 100;
  const Datasets datasets = build_datasets(spec, options);
  const std::int64_t size = datasets.train->size();
  EXPECT_TRUE(contains(error_of([&] { make_order(spec, *datasets.train, 2, 2, size); }), "no samples left to consume"));
  spec.dataloader_type = spec::DataloaderType::cyclic;
  EXPECT_TRUE(contains(error_of([&] { make_order(spec, *datasets.train, 2, 2, 3); }), "multiple of"));
  EXPECT_EQ(error_of([&] { make_order(spec, *datasets.train, 2, 2, 4); }), "");
}

}  // namespace
}  // namespace megatron::data
