#include "data/gpt_dataset.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "data/index_md5.h"
#include "data/indexed_dataset.h"
#include "golden.h"

namespace megatron::data {
namespace {

using testing::Ints;
using testing::Json;

/// Sequences whose tokens count 0, 1, 2, … through the whole source, or given ids.
class ListSource final : public SequenceSource {
 public:
  explicit ListSource(std::vector<Ints> sequences) : sequences_(std::move(sequences)) {}
  static std::shared_ptr<const ListSource> counting(const Ints& lengths) {
    std::vector<Ints> sequences;
    std::int64_t next = 0;
    for (const std::int64_t length : lengths) {
      sequences.emplace_back();
      for (std::int64_t i = 0; i < length; ++i) sequences.back().push_back(next++);
    }
    return std::make_shared<const ListSource>(std::move(sequences));
  }
  std::int64_t num_sequences() const override { return static_cast<std::int64_t>(sequences_.size()); }
  std::int64_t length(std::int64_t i) const override {
    return static_cast<std::int64_t>(sequences_[static_cast<std::size_t>(i)].size());
  }
  void read(std::int64_t i, std::int64_t offset, std::int64_t count, std::int64_t* out) const override {
    std::copy_n(sequences_[static_cast<std::size_t>(i)].begin() + offset, count, out);
  }

 private:
  std::vector<Ints> sequences_;
};

struct Indices {
  Ints documents, starts, order;
};

Indices indices_of(const GptIndex& index) {
  Indices out;
  for (std::int64_t i = 0; i < index.documents.size(); ++i) out.documents.push_back(index.documents[i]);
  for (std::int64_t i = 0; i < index.sample_document.size(); ++i) {
    out.starts.push_back(index.sample_document[i]);
    out.starts.push_back(index.sample_offset[i]);
  }
  for (std::int64_t i = 0; i < index.order.size(); ++i) out.order.push_back(index.order[i]);
  return out;
}

struct SmallCase {
  const char* name;
  Ints lengths;
  IndexRange range;
  GptIndexConfig config;
  std::int64_t epochs;
  bool separate;
  Indices expected;
};

std::vector<SmallCase> small_cases() {
  const Ints a = {5, 3, 8, 2, 6, 9, 4, 7}, b = {10, 7, 5};
  const Indices one = {{2, 1, 6, 0, 4, 5, 3, 7}, {0, 0, 1, 0, 3, 1, 4, 4, 5, 6, 7, 3}, {2, 0, 4, 3, 1}};
  const Indices two = {{0, 1, 2, 1, 2, 0},
                       {0, 0, 0, 4, 0, 8, 1, 2, 1, 6, 2, 3, 3, 2, 3, 6, 4, 3, 5, 2, 5, 6},
                       {4, 2, 3, 1, 0, 5, 9, 8, 7, 6}};
  const Indices keep0 = {{0, 1, 2}, {0, 0, 0, 4, 0, 8, 1, 2, 1, 6, 2, 3, 2, 5}, {3, 2, 1, 0, 5, 4}};
  const Indices keep1 = {{0, 1, 2}, {0, 0, 0, 4, 0, 8, 1, 2, 1, 6, 2, 3, 2, 4}, {3, 2, 1, 0, 5, 4}};
  const Indices part = {{3, 3, 2, 5, 4, 2, 5, 4},
                        {0, 0, 0, 4, 1, 2, 2, 0, 2, 4, 3, 3, 3, 7, 4, 2, 5, 2, 6, 1, 6, 5, 7, 0},
                        {0, 1, 5, 3, 4, 7, 8, 10, 2, 9, 6}};
  return {{"one epoch", a, {0, 8}, {8, 5, 1234, true, true}, 1, false, one},
          {"whole once", a, {0, 8}, {8, {}, 1234, true, true}, 1, false, one},
          {"two epochs", b, {0, 3}, {4, 8, 1234, true, true}, 2, true, two},
          {"two epochs, six samples", b, {0, 3}, {4, 6, 1234, true, true}, 2, true, two},
          {"keep the partial one, no extra token", b, {0, 3}, {4, {}, 1234, false, false}, 1, false, keep0},
          {"keep the partial one", b, {0, 3}, {4, {}, 1234, true, false}, 1, false, keep1},
          {"part of a file", {10, 7, 5, 6, 4, 9}, {2, 6}, {4, 9, 42, true, true}, 2, false, part}};
}

TEST(GptIndex, SmallCasesOfTheReference) {
  for (const SmallCase& c : small_cases()) {
    const auto source = ListSource::counting(c.lengths);
    const GptIndex index = build_gpt_index(c.config, c.range, [&](std::int64_t i) { return source->length(i); });
    const Indices actual = indices_of(index);
    EXPECT_EQ(index.plan.num_epochs, c.epochs) << c.name;
    EXPECT_EQ(index.plan.separate_last_epoch, c.separate) << c.name;
    EXPECT_EQ(actual.documents, c.expected.documents) << c.name;
    EXPECT_EQ(actual.starts, c.expected.starts) << c.name;
    EXPECT_EQ(actual.order, c.expected.order) << c.name;
  }
}

TEST(GptIndex, SweepOfTheReference) {
  const Ints epochs = {1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3};
  const Ints separate = {0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0};
  const Ints samples = {5, 5, 5, 5, 5, 10, 10, 10, 10, 10, 16, 16, 16, 16, 16, 16};
  for (std::size_t n = 1; n <= 16; ++n) {
    const GptIndexPlan plan = plan_gpt_index({8, static_cast<std::int64_t>(n), 1234, true, true}, 8, 44);
    EXPECT_EQ(plan.num_epochs, epochs[n - 1]) << n;
    EXPECT_EQ(plan.separate_last_epoch ? 1 : 0, separate[n - 1]) << n;
    EXPECT_EQ(plan.num_samples, samples[n - 1]) << n;
  }
}

// Every corpus size and request builds, and each sample has all its tokens.
TEST(GptIndex, SmallDataInAnyNumbers) {
  for (std::int64_t tokens = 5; tokens <= 40; ++tokens) {
    const auto source = ListSource::counting({2, tokens - 2});
    for (std::int64_t n = 1; n <= 30; ++n) {
      GptDatasetConfig config;
      config.index = {4, n, 1234, true, true};
      const GptDataset dataset(source, {0, 2}, config);
      ASSERT_GE(dataset.size(), n);
      for (std::int64_t i = 0; i < n; ++i) {
        const Sample sample = dataset.get(i);
        ASSERT_EQ(sample.tokens.size(), 4U);
        for (const std::int64_t label : sample.labels) ASSERT_TRUE(label >= 0 && label < tokens);
        for (const float weight : sample.loss_mask) ASSERT_EQ(weight, 1.0F);
      }
    }
  }
}

TEST(GptIndex, LargeCountsUse64BitsOrAreRefused) {
  const std::int64_t many = (1LL << 31) + 1;
  GptIndexPlan plan = plan_gpt_index({1024, many, 1, true, true}, many, many * 2000);
  EXPECT_EQ(plan.num_epochs, 1);
  EXPECT_EQ(plan.num_samples, (many * 2000 - 1) / 1024);
  EXPECT_EQ(plan.num_documents, many);
  plan = plan_gpt_index({16, many, 1, true, true}, 1000, 8000);
  EXPECT_EQ(plan.num_epochs, (many * 16) / 8000 + 1);
  EXPECT_EQ(plan.num_documents, plan.num_epochs * 1000);
  EXPECT_GT(plan.num_documents, 1LL << 32);
  EXPECT_TRUE(IndexArray(0, 1LL << 32).wide());
  EXPECT_FALSE(IndexArray(0, (1LL << 32) - 1).wide());
  EXPECT_THROW(plan_gpt_index({1LL << 40, 1LL << 40, 1, true, true}, 10, 100), ConfigError);
}

TEST(GptIndex, RefusesSplitsWithoutTokens) {
  EXPECT_THROW(plan_gpt_index({16, 2, 1, true, true}, 0, 0), ConfigError);
  EXPECT_THROW(plan_gpt_index({16, {}, 1, true, true}, 0, 0), ConfigError);
  EXPECT_THROW(plan_gpt_index({16, {}, 1, true, true}, 1, 1), ConfigError);
}

TEST(GptDataset, InputAndLabelsShareAllButOneToken) {
  GptDatasetConfig config;
  config.index = {4, {}, 1234, true, true};
  const GptDataset nine(ListSource::counting({9}), {0, 1}, config);
  ASSERT_EQ(nine.size(), 2);
  std::set<Ints> texts;
  for (std::int64_t i = 0; i < 2; ++i) {
    Ints text = nine.get(i).tokens;
    text.push_back(nine.get(i).labels.back());
    texts.insert(text);
  }
  EXPECT_EQ(texts, (std::set<Ints>{{0, 1, 2, 3, 4}, {4, 5, 6, 7, 8}}));
  EXPECT_EQ(GptDataset(ListSource::counting({8}), {0, 1}, config).size(), 1);
  EXPECT_EQ(GptDataset(ListSource::counting({13}), {0, 1}, config).size(), 3);
  EXPECT_THROW(nine.get(2), Error);
  EXPECT_THROW(nine.get(-1), Error);
}

TEST(GptDataset, SequencesWithoutTokensAreSkipped) {
  GptDatasetConfig config;
  config.index = {4, {}, 7, true, true};
  const auto with = std::make_shared<const ListSource>(std::vector<Ints>{{0, 1, 2, 3, 4, 5, 6, 7, 8}, {}});
  const GptDataset dataset(with, {0, 2}, config);
  ASSERT_EQ(dataset.size(), 2);
  std::set<Ints> texts = {dataset.get(0).tokens, dataset.get(1).tokens};
  EXPECT_EQ(texts, (std::set<Ints>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
}

TEST(GptDataset, OptionsAtDocumentEnds) {
  GptDatasetConfig config;
  config.index = {6, {}, 1, true, true};
  config.eod = 7;
  const auto source = std::make_shared<const ListSource>(std::vector<Ints>{{1, 7, 2, 3, 7, 4, 5}});
  config.reset_position_ids = true;
  EXPECT_EQ(GptDataset(source, {0, 1}, config).get(0).position_ids, (Ints{0, 1, 0, 1, 2, 0}));
  config.reset_position_ids = false;
  config.reset_attention_mask = true;
  EXPECT_EQ(GptDataset(source, {0, 1}, config).get(0).sequence_starts, (Ints{0, 2, 5, 6}));
  config.reset_attention_mask = false;
  config.eod_mask_loss = true;
  const Sample sample = GptDataset(source, {0, 1}, config).get(0);
  EXPECT_EQ(sample.loss_mask, (std::vector<float>{1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(sample.sequence_starts, (Ints{0, 6}));
  EXPECT_EQ(sample.position_ids, (Ints{0, 1, 2, 3, 4, 5}));
  config.eod.reset();
  EXPECT_THROW(GptDataset(source, {0, 1}, config), ConfigError);
}

// A tokenizer whose padding is its end of document: the real end is learned, only what was filled up is not.
TEST(GptDataset, AnEndThatIsAlsoThePaddingIsTrained) {
  GptDatasetConfig config;
  config.index = {4, {}, 1, true, false};
  config.eod = 0;
  config.pad = usable_pad(0, config.eod);
  const GptDataset dataset(std::make_shared<const ListSource>(std::vector<Ints>{{5, 0, 7, 0}}), {0, 1}, config);
  ASSERT_EQ(dataset.size(), 1);
  const Sample sample = dataset.get(0);
  EXPECT_EQ(sample.tokens, (Ints{5, 0, 7, 0}));
  EXPECT_EQ(sample.labels, (Ints{0, 7, 0, 0}));
  EXPECT_EQ(sample.loss_mask, (std::vector<float>{1, 1, 1, 0}));
}

TEST(GptDataset, PaddingIsMaskedByLabel) {
  GptDatasetConfig config;
  config.index = {4, {}, 1, true, false};
  config.pad = 9;
  const GptDataset dataset(std::make_shared<const ListSource>(std::vector<Ints>{{1, 2, 3, 4, 5, 6, 7}}), {0, 1},
                           config);
  ASSERT_EQ(dataset.size(), 2);
  const Sample sample = dataset.get(dataset.index().order[0] == 1 ? 0 : 1);
  EXPECT_EQ(sample.tokens, (Ints{5, 6, 7, 0}));
  EXPECT_EQ(sample.labels, (Ints{6, 7, 0, 0}));
  EXPECT_EQ(sample.loss_mask, (std::vector<float>{1, 1, 0, 0}));
  EXPECT_EQ(usable_pad(7, 7), -1);
  EXPECT_EQ(usable_pad(7, 7, true), 7);
  EXPECT_EQ(usable_pad(7, 8), 7);
  EXPECT_EQ(usable_pad(7, std::nullopt), 7);
}

GptDatasetConfig config_of(const Json& record) {
  GptDatasetConfig config;
  const Json& options = record["options"];
  config.index.seq_length = record["sequence_length"].get<std::int64_t>();
  config.index.seed = record["seed"].get<std::uint64_t>();
  if (!record["num_samples"].is_null()) config.index.num_samples = record["num_samples"].get<std::int64_t>();
  config.index.extra_token = options.value("add_extra_token_to_sequence", true);
  config.index.drop_last_partial =
      record["split_name"] != "valid" || options.value("drop_last_partial_validation_sequence", true);
  config.eod = 7;
  const auto tokenizer = record["tokenizer"].get<std::string>();
  const std::int64_t pad = tokenizer == "null_eod_pad" ? 9 : tokenizer == "null_pad_is_eod" ? 7 : -1;
  config.pad = usable_pad(pad, config.eod, options.value("allow_ambiguous_pad_tokens", false));
  config.reset_position_ids = options.value("reset_position_ids", false);
  config.reset_attention_mask = options.value("reset_attention_mask", false);
  config.eod_mask_loss = options.value("eod_mask_loss", false);
  config.inter_document_masking = options.value("inter_document_masking", false);
  return config;
}

IndexRange range_of(const Json& record, std::int64_t num_sequences) {
  const auto name = record["split_name"].get<std::string>();
  const std::size_t split = name == "train" ? 0 : name == "valid" ? 1 : 2;
  return split_range(*parse_split(record["split"].get<std::string>())[split], num_sequences);
}

void expect_dataset(const Json& record, const GptDataset& dataset) {
  const Json& ok = record["ok"];
  const auto name = record["name"].get<std::string>();
  const GptIndexPlan& plan = dataset.index().plan;
  EXPECT_EQ(plan.tokens_per_epoch, ok["tokens_per_epoch"].get<std::int64_t>()) << name;
  EXPECT_EQ(plan.num_epochs, ok["num_epochs"].get<std::int64_t>()) << name;
  ASSERT_EQ(dataset.size(), ok["len"].get<std::int64_t>()) << name;
  const Indices indices = indices_of(dataset.index());
  testing::expect_array(indices.documents, ok["document_index"], name);
  testing::expect_array(indices.starts, ok["sample_index"], name);
  testing::expect_array(indices.order, ok["shuffle_index"], name);
  for (const Json& sample : ok["samples"])
    testing::expect_sample(dataset.get(sample["i"].get<std::int64_t>()), sample, name + " " + sample["i"].dump());
  if (ok.contains("sample_none")) testing::expect_sample(dataset.filler(), ok["sample_none"], name);
}

TEST(GptDataset, AllReferenceRecords) {
  const auto path = testing::dataset_dir() / "gpt_dataset.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  int compared = 0, refused = 0;
  for (const Json& record : testing::load_json(path)) {
    const auto prefix = testing::dataset_dir() / record["prefix"].get<std::string>();
    const auto source = std::make_shared<const IndexedDataset>(prefix.string());
    const IndexRange range = range_of(record, source->num_sequences());
    const Json& indices = record["indices"];
    if (!indices.empty()) {
      EXPECT_EQ(range.begin, indices[0].get<std::int64_t>());
      EXPECT_EQ(range.end, indices[1].get<std::int64_t>());
    }
    const GptDatasetConfig config = config_of(record);
    if (record.contains("error")) {
      EXPECT_THROW(GptDataset(source, range, config), ConfigError) << record["name"];
      ++refused;
      continue;
    }
    const GptDataset dataset(source, range, config);
    EXPECT_EQ(config.pad, record["ok"]["pad_token_id"].get<std::int64_t>());
    expect_dataset(record, dataset);
    const IndexMd5 sums = index_md5(dataset.index());
    EXPECT_EQ(sums.documents, record["ok"]["document_index"]["md5"].get<std::string>()) << record["name"];
    EXPECT_EQ(sums.samples, record["ok"]["sample_index"]["md5"].get<std::string>()) << record["name"];
    EXPECT_EQ(sums.order, record["ok"]["shuffle_index"]["md5"].get<std::string>()) << record["name"];
    ++compared;
  }
  EXPECT_EQ(compared, 92);
  EXPECT_EQ(refused, 2);
}

}  // namespace
}  // namespace megatron::data
