#include "data/mock_dataset.h"

#include <numeric>

#include "data/gpt_dataset.h"
#include "golden.h"

namespace megatron::data {
namespace {

using testing::Ints;
using testing::Json;

TEST(NumpyDefaultRng, FirstWords) {
  NumpyDefaultRng rng;
  EXPECT_EQ(rng.next64(), 11749869230777074271ULL);
  EXPECT_EQ(rng.next64(), 4976686463289251617ULL);
  EXPECT_EQ(rng.next64(), 755828109848996024ULL);
  NumpyDefaultRng halves;
  EXPECT_EQ(halves.next32(), static_cast<std::uint32_t>(11749869230777074271ULL));
  EXPECT_EQ(halves.next32(), static_cast<std::uint32_t>(11749869230777074271ULL >> 32));
}

TEST(MockSource, LengthsOfTheReference) {
  const MockSource source(1000, 999);
  ASSERT_EQ(source.num_sequences(), 100000);
  Ints first;
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < source.num_sequences(); ++i) {
    if (i < 10) first.push_back(source.length(i));
    total += source.length(i);
  }
  EXPECT_EQ(first, (Ints{3484, 2609, 2094, 1105, 1261, 168, 309, 68, 718, 3331}));
  EXPECT_EQ(total, 204637097);
}

TEST(MockSource, CountsAndEndsADocument) {
  const MockSource source(50, 49);
  Ints tokens(68);
  source.read(7, 0, 68, tokens.data());
  EXPECT_EQ(tokens[0], 1);
  EXPECT_EQ(tokens[48], 49);
  EXPECT_EQ(tokens[49], 0);
  EXPECT_EQ(tokens[66], 17);
  EXPECT_EQ(tokens[67], 49);
}

TEST(MockDataset, AllReferenceRecords) {
  const auto path = testing::dataset_dir() / "mock.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  for (const Json& record : testing::load_json(path)) {
    const auto vocab = record["vocab"].get<std::int64_t>();
    const auto source = std::make_shared<const MockSource>(vocab, vocab - 1);
    const SplitMatrix matrix = parse_split("1,1,1");
    for (std::size_t split = 0; split < 3; ++split) {
      const Json& expected = record["splits"][split];
      GptDatasetConfig config;
      config.eod = vocab - 1;
      config.index.seq_length = record["sequence_length"].get<std::int64_t>();
      config.index.seed = record["seed"].get<std::uint64_t>();
      config.index.num_samples = record["sizes"][split].get<std::int64_t>();
      const GptDataset dataset(source, split_range(*matrix[split], source->num_sequences()), config);
      ASSERT_EQ(dataset.size(), expected["len"].get<std::int64_t>());
      Ints documents, starts, order;
      const GptIndex& index = dataset.index();
      for (std::int64_t i = 0; i < index.documents.size(); ++i) documents.push_back(index.documents[i]);
      for (std::int64_t i = 0; i <= dataset.size(); ++i) {
        starts.push_back(index.sample_document[i]);
        starts.push_back(index.sample_offset[i]);
      }
      for (std::int64_t i = 0; i < dataset.size(); ++i) order.push_back(index.order[i]);
      if (expected.contains("document_index"))
        testing::expect_array(documents, expected["document_index"], "document index");
      if (expected.contains("sample_index")) testing::expect_array(starts, expected["sample_index"], "sample index");
      if (expected.contains("shuffle_index")) testing::expect_array(order, expected["shuffle_index"], "shuffle index");
      for (const Json& sample : expected["samples"])
        testing::expect_sample(dataset.get(sample["i"].get<std::int64_t>()), sample, sample["i"].dump());
    }
  }
}

}  // namespace
}  // namespace megatron::data
