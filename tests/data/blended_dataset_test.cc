#include "data/blended_dataset.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "data/blend_cache.h"
#include "data/indexed_dataset.h"
#include "data/split_builder.h"
#include "golden.h"
#include "temporary_folder.h"

namespace megatron::data {
namespace {

using testing::Ints;
using testing::Json;

Ints members_of(const BlendIndex& index) { return Ints(index.member.begin(), index.member.end()); }
Ints samples_of(const BlendIndex& index) {
  Ints samples;
  for (std::int64_t i = 0; i < index.sample.size(); ++i) samples.push_back(index.sample[i]);
  return samples;
}

TEST(BlendIndex, SmallCasesOfTheReference) {
  const BlendIndex a = build_weighted_blend({0.5, 0.25, 0.25}, 8);
  EXPECT_EQ(members_of(a), (Ints{0, 1, 2, 0, 0, 1, 2, 0}));
  EXPECT_EQ(samples_of(a), (Ints{0, 0, 0, 1, 2, 1, 1, 3}));
  EXPECT_EQ(members_of(build_weighted_blend({0.3, 0.7}, 10)), (Ints{1, 0, 1, 1, 0, 1, 1, 0, 1, 1}));
  EXPECT_EQ(members_of(build_weighted_blend({0.5, 0.5}, 6)), (Ints{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(members_of(build_weighted_blend({0.1, 0.2, 0.7}, 20)),
            (Ints{2, 1, 2, 0, 2, 2, 1, 2, 2, 2, 0, 2, 1, 2, 2, 2, 1, 2, 2, 2}));
  const BlendIndex exhaustive = build_exhaustive_blend({3, 1, 2});
  EXPECT_EQ(members_of(exhaustive), (Ints{0, 2, 1, 0, 2, 0}));
  EXPECT_EQ(samples_of(exhaustive), (Ints{0, 0, 0, 1, 1, 2}));
  EXPECT_EQ(members_of(build_exhaustive_blend({2, 5})), (Ints{1, 0, 1, 1, 0, 1, 1}));
  EXPECT_THROW(build_exhaustive_blend({2, 0}), Error);
}

TEST(BlendIndex, WeightsAreSharesOfSamples) {
  EXPECT_EQ(members_of(build_weighted_blend(normalize_weights({3, 1}), 8)), (Ints{0, 1, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(members_of(build_weighted_blend(normalize_weights({3, 1}), 800)),
            members_of(build_weighted_blend(normalize_weights({0.75, 0.25}), 800)));
  EXPECT_EQ(build_weighted_blend(normalize_weights({0.01, 0.99}), 100).counts, (Ints{1, 99}));
  // The rule of the reference draws even the smallest weight once, at sample 1.
  EXPECT_EQ(build_weighted_blend(normalize_weights({1, 1e-9}), 10).counts, (Ints{9, 1}));
}

TEST(Blend, ListsOfPaths) {
  const Blend weighted = parse_blend({"0.3", "a", "7e-1", "b"}, "--data-path");
  EXPECT_EQ(weighted.prefixes, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(*weighted.weights, (std::vector<double>{0.3, 0.7}));
  EXPECT_FALSE(parse_blend({"a"}, "--data-path").weights.has_value());
  EXPECT_FALSE(parse_blend({"a", "b"}, "--data-path").weights.has_value());
  EXPECT_EQ(parse_blend({"1", "b", "c"}, "--data-path").prefixes.size(), 3U);
  EXPECT_THROW(parse_blend({"1", "a", "b", "c"}, "--data-path"), ConfigError);
  EXPECT_THROW(parse_blend({"0", "a"}, "--data-path"), ConfigError);
  EXPECT_THROW(parse_blend({"-1", "a"}, "--data-path"), ConfigError);
  EXPECT_THROW(parse_blend({"nan", "a"}, "--data-path"), ConfigError);
}

TEST(Blend, SizesOfTheReference) {
  EXPECT_EQ(member_target(1000, 0.3), 300);
  EXPECT_EQ(member_target_with_surplus(1000, 0.3, 0.005), 302);
  EXPECT_EQ(member_target_with_surplus(10, 0.7, 0.005), 8);
  const auto path = testing::dataset_dir() / "blend_sizes.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  const Json records = testing::load_json(path);
  for (const auto& [name, record] : records.items()) {
    const auto weights = normalize_weights(record["weights"].get<std::vector<double>>());
    const auto sizes = record["sizes"].get<Ints>();
    for (std::size_t j = 0; j < weights.size(); ++j)
      for (std::size_t s = 0; s < sizes.size(); ++s) {
        EXPECT_EQ(member_target(sizes[s], weights[j]), record["target"][j][s].get<std::int64_t>()) << name;
        EXPECT_EQ(member_target_with_surplus(sizes[s], weights[j], 0.005), record["buffer"][j][s].get<std::int64_t>());
        EXPECT_EQ(member_target_with_surplus(sizes[s], weights[j], 0.05),
                  record["buffer_.05"][j][s].get<std::int64_t>());
      }
  }
}

TEST(BlendIndex, AllReferenceRecords) {
  const auto path = testing::dataset_dir() / "blending_indices.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  for (const Json& record : testing::load_json(path)) {
    const BlendIndex index =
        record["kind"] == "weighted"
            ? build_weighted_blend(record["weights"].get<std::vector<double>>(), record["size"].get<std::int64_t>())
            : build_exhaustive_blend(record["sizes"].get<Ints>());
    testing::expect_array(members_of(index), record["dataset_index"], record["kind"]);
    testing::expect_array(samples_of(index), record["dataset_sample_index"], record["kind"]);
  }
}

Blend blend_of(const Json& json) {
  Blend blend{json[0].get<std::vector<std::string>>(), {}};
  if (!json[1].is_null()) blend.weights = json[1].get<std::vector<double>>();
  return blend;
}

std::shared_ptr<const SequenceSource> open_reference(const std::string& prefix) {
  return std::make_shared<const IndexedDataset>((testing::dataset_dir() / prefix).string());
}

/// What the reference would build for one split, or nothing.
std::optional<SplitRequest> request_of(const Json& record, std::size_t split) {
  const Json& options = record["options"];
  SplitRequest request;
  request.name = static_cast<SplitName>(split);
  if (options.contains("blend_per_split")) {
    if (options["blend_per_split"][split].is_null()) return std::nullopt;
    request.blend = blend_of(options["blend_per_split"][split]);
  } else {
    request.blend = blend_of(options["blend"]);
    const auto share = parse_split(options["split"].get<std::string>())[split];
    if (!share) return std::nullopt;
    request.share = *share;
  }
  if (!record["sizes"][split].is_null()) request.num_samples = record["sizes"][split].get<std::int64_t>();
  request.surplus = options.value("mid_level_dataset_surplus", 0.005);
  request.config.eod = 7;
  request.config.index.seq_length = record["sequence_length"].get<std::int64_t>();
  request.config.index.seed = record["seed"].get<std::uint64_t>();
  return request;
}

void expect_members(const BuiltSplit& built, const Json& members, const std::string& name) {
  ASSERT_EQ(built.members.size(), members.size()) << name;
  for (std::size_t j = 0; j < members.size(); ++j) {
    EXPECT_EQ(built.members[j].dataset->size(), members[j]["len"].get<std::int64_t>()) << name;
    EXPECT_EQ(built.members[j].range.begin, members[j]["indices"][0].get<std::int64_t>()) << name;
    EXPECT_EQ(built.members[j].range.end, members[j]["indices"][1].get<std::int64_t>()) << name;
    ASSERT_EQ(built.members[j].num_samples.has_value(), !members[j]["num_samples"].is_null()) << name;
    if (built.members[j].num_samples) {
      EXPECT_EQ(*built.members[j].num_samples, members[j]["num_samples"].get<std::int64_t>()) << name;
    }
  }
}

void expect_split(const BuiltSplit& built, const Json& expected, const std::string& name) {
  ASSERT_EQ(built.dataset->size(), expected["len"].get<std::int64_t>()) << name;
  EXPECT_EQ(built.blend != nullptr, expected["class"] == "BlendedDataset") << name;
  if (built.blend != nullptr) {
    testing::expect_array(members_of(*built.blend), expected["dataset_index"], name);
    testing::expect_array(samples_of(*built.blend), expected["dataset_sample_index"], name);
    expect_members(built, expected["members"], name);
    if (!expected["size"].is_null()) {
      EXPECT_EQ(built.weights, expected["weights"].get<std::vector<double>>()) << name;
    }
  }
  for (const Json& sample : expected.value("samples", Json::array()))
    testing::expect_sample(built.dataset->get(sample["i"].get<std::int64_t>()), sample, name + sample["i"].dump());
}

IndexCache cache_of(const Json& record, const std::string& folder) {
  IndexCache cache;
  cache.folder = folder;
  if (!record["options"].contains("blend_per_split")) cache.split = record["options"]["split"].get<std::string>();
  cache.tokenizer = tokenizer_description(*tokenizer::create_tokenizer("NullTokenizer", {60000, 7}));
  return cache;
}

/// A split, or each file of a list of validation sets on its own.
void build_and_compare(const SplitRequest& request, const Json& expected, const std::string& name) {
  if (expected["class"] != "list") return expect_split(build_split(request, open_reference), expected, name);
  for (std::size_t j = 0; j < expected["members"].size(); ++j) {
    SplitRequest single = request;
    single.blend = Blend{{request.blend.prefixes[j]}, {}};
    EXPECT_EQ(build_split(single, open_reference).dataset->size(), expected["members"][j]["len"].get<std::int64_t>());
  }
}

TEST(BuildSplit, AllReferenceRecords) {
  const auto path = testing::dataset_dir() / "blended.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  int compared = 0;
  for (const Json& record : testing::load_json(path)) {
    const auto name = record["name"].get<std::string>();
    const testing::TemporaryFolder folder;
    for (std::size_t split = 0; split < 3; ++split) {
      auto request = request_of(record, split);
      if (record.contains("error")) {
        EXPECT_THROW(build_split(*request, open_reference), Error) << name;
        continue;
      }
      const Json& expected = record["ok"][std::string(kSplitNames[split])];
      ASSERT_EQ(request.has_value(), !expected.is_null()) << name;
      if (!request) continue;
      build_and_compare(*request, expected, name);
      request->cache = cache_of(record, folder / "");
      for (const char* run : {" written", " read"}) build_and_compare(*request, expected, name + run);
      ++compared;
    }
    if (!record.contains("ok")) continue;
    std::vector<std::string> files;
    for (const auto& item : std::filesystem::directory_iterator(folder / ""))
      if (!item.path().filename().string().ends_with("-checksums.txt"))  // a file of our own
        files.push_back(item.path().filename());
    std::sort(files.begin(), files.end());
    auto expected = record["ok"]["cache_files"].get<std::vector<std::string>>();
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(files, expected) << name;
  }
  EXPECT_GT(compared, 30);
}

std::string cached_bytes(const std::string& folder, const std::string& suffix) {
  std::string found;
  for (const auto& item : std::filesystem::directory_iterator(folder))
    if (item.path().string().ends_with(suffix)) found += testing::read_file(item.path());
  return found;
}

TEST(BlendCache, IsReadIfItFitsAndBuiltAnewIfNot) {
  const testing::TemporaryFolder folder;
  const IndexCache cache{folder / "c", {}, ""};
  const BlendPlan plan{{0.7, 0.2, 0.1}, {}, 1000};
  const std::string description = blend_description({"{}", "{\"a\": 1}", "{}"}, SplitName::valid, plan);
  const BlendIndex built = build_blend(plan);
  const auto cached = [&] {
    std::string note;
    BlendIndex index = cached_blend(cache, description, SplitName::valid, plan, note);
    EXPECT_EQ(note, "");
    EXPECT_EQ(members_of(index), members_of(built));
    EXPECT_EQ(samples_of(index), samples_of(built));
    EXPECT_EQ(index.counts, built.counts);
    return index.sample.mapped();
  };
  EXPECT_FALSE(cached());
  EXPECT_TRUE(cached());
  const std::string base = cache_base(cache, description, "BlendedDataset", SplitName::valid);
  for (const char* name : {"dataset_index.npy", "dataset_sample_index.npy", "description.txt"}) {
    const std::string whole = testing::read_file(base + name);
    std::string other = whole;
    ++other[other.size() - 2];
    for (const std::string& damaged : {whole.substr(0, whole.size() - 1), other, std::string()}) {
      testing::write_file(base + name, damaged);
      EXPECT_FALSE(cached()) << name;
      EXPECT_EQ(testing::read_file(base + name), whole);
      EXPECT_TRUE(cached());
    }
  }
}

TEST(BlendCache, OfAnExhaustiveBlendHoldsEveryMemberOnce) {
  const testing::TemporaryFolder folder;
  const IndexCache cache{folder / "", {}, ""};
  const BlendPlan plan{{}, {30, 1, 9}, {}};
  const std::string description = blend_description({"{}", "{}", "{}"}, SplitName::train, plan);
  std::string note;
  const BlendIndex first = cached_blend(cache, description, SplitName::train, plan, note);
  const BlendIndex second = cached_blend(cache, description, SplitName::train, plan, note);
  EXPECT_TRUE(second.sample.mapped());
  EXPECT_EQ(second.counts, plan.sizes);
  EXPECT_EQ(samples_of(first), samples_of(second));
  EXPECT_NE(cached_bytes(folder / "", "description.txt").find("\"size\": null"), std::string::npos);
}

TEST(BlendCache, AFolderThatCannotBeWrittenIsToldAndHarmless) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder / "file", "");
  const IndexCache cache{folder / "file/sub", {}, ""};
  const BlendPlan plan{{0.5, 0.5}, {}, 10};
  std::string note;
  const BlendIndex index = cached_blend(cache, "x", SplitName::test, plan, note);
  EXPECT_EQ(samples_of(index), samples_of(build_blend(plan)));
  EXPECT_NE(note.find("--data-cache-path " + (folder / "file/sub") + ": indices are not kept"), std::string::npos);
}

}  // namespace
}  // namespace megatron::data
