#include "spec/layer_split.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "support/reference_data.h"

namespace megatron::spec {
namespace {

using Ids = std::vector<std::vector<std::vector<std::int64_t>>>;

Ids ids_of(const std::vector<std::vector<LayerRange>>& ranges) {
  Ids ids;
  for (const auto& rank : ranges) {
    auto& chunks = ids.emplace_back();
    for (const LayerRange& range : rank) {
      auto& layers = chunks.emplace_back();
      for (std::int64_t i = 0; i < range.count; ++i) layers.push_back(range.first + i);
    }
  }
  return ids;
}

TEST(LayerSplit, EveryLayerOnceAndInOrder) {
  for (std::int64_t layers = 1; layers <= 20; ++layers) {
    for (int stages = 1; stages <= layers; ++stages) {
      const auto ranges = split_layers({.num_layers = layers, .pipeline_parallel = stages});
      std::int64_t next = 0;
      for (const auto& rank : ranges) {
        ASSERT_EQ(rank.size(), 1u);
        EXPECT_EQ(rank[0].first, next);
        EXPECT_GE(rank[0].count, layers / stages);
        EXPECT_LE(rank[0].count, layers / stages + 1);
        next += rank[0].count;
      }
      EXPECT_EQ(next, layers) << layers << " over " << stages;
    }
  }
}

TEST(LayerSplit, RemainderGoesToTheMiddle) {
  EXPECT_EQ(layers_per_stage(split_layers({.num_layers = 10, .pipeline_parallel = 3})),
            (std::vector<std::int64_t>{3, 4, 3}));
  EXPECT_EQ(layers_per_stage(split_layers({.num_layers = 7, .pipeline_parallel = 2})),
            (std::vector<std::int64_t>{4, 3}));
}

std::string message_of(const LayerSplit& split) {
  try {
    split_layers(split);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LayerSplit, RefusesWithTheNumbers) {
  EXPECT_NE(message_of({.num_layers = 6, .pipeline_parallel = 4, .chunks = 3}).find("6 layers not divisible by"),
            std::string::npos);
  EXPECT_NE(message_of({.num_layers = 6, .pipeline_parallel = 2, .chunks = 2}).find("3 per rank, not divisible by 2"),
            std::string::npos);
  EXPECT_NE(message_of({.num_layers = 2, .pipeline_parallel = 1, .last = 1}), "accepted");
  EXPECT_NE(message_of({.num_layers = 3, .pipeline_parallel = 4}), "accepted");
}

TEST(LayerSplit, SplitsOfMegatron) {
  const auto path = megatron::testing::reference_dir() / "golden/mcore/pipeline/layers.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  int compared = 0;
  for (const auto& entry : nlohmann::json::parse(std::ifstream(path))) {
    auto optional = [&entry](const char* key) -> std::optional<std::int64_t> {
      if (!entry.contains(key) || entry[key].is_null()) return std::nullopt;
      return entry[key].get<std::int64_t>();
    };
    const LayerSplit split{.num_layers = entry["num_layers"],
                           .pipeline_parallel = entry["pp"],
                           .chunks = static_cast<int>(optional("vpp").value_or(1)),
                           .first = optional("num_layers_in_first_pipeline_stage"),
                           .last = optional("num_layers_in_last_pipeline_stage"),
                           .account_for_embedding = entry.value("account_for_embedding_in_pipeline_split", false),
                           .account_for_loss = entry.value("account_for_loss_in_pipeline_split", false)};
    if (entry.contains("ok")) {
      EXPECT_EQ(ids_of(split_layers(split)), entry["ok"].get<Ids>()) << entry.dump();
    } else if (needs_automatic_split(split)) {
      EXPECT_NO_THROW(split_layers(split)) << entry.dump();  // Megatron refuses, we split unevenly
    } else {
      EXPECT_THROW(split_layers(split), ConfigError) << entry.dump();
    }
    ++compared;
  }
  EXPECT_GE(compared, 25);
}

TEST(PipelineLayout, LayoutsOfMegatron) {
  const auto path = megatron::testing::reference_dir() / "golden/mcore/pipeline/layout_strings.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  int accepted = 0, refused = 0;
  for (const auto& entry : nlohmann::json::parse(std::ifstream(path))) {
    if (!entry["layout"].is_string()) continue;
    const std::string layout = entry["layout"];
    const std::int64_t mtp = entry["mtp_num_layers"].is_null() ? 0 : entry["mtp_num_layers"].get<std::int64_t>();
    auto split = [&] { return split_by_layout(layout, entry["pp"], entry["num_layers"], mtp); };
    if (entry.contains("valid") && entry["valid"].contains("ok")) {
      EXPECT_EQ(ids_of(split()), entry["decoder_ids[pp][vpp]"].get<Ids>()) << layout;
      EXPECT_EQ(layout_has_standalone_mtp(layout), entry["valid"]["ok"].get<bool>()) << layout;
      ++accepted;
    } else {
      EXPECT_THROW(split(), ConfigError) << entry.dump();
      ++refused;
    }
  }
  EXPECT_GE(accepted, 12);
  EXPECT_GE(refused, 12);
}

}  // namespace
}  // namespace megatron::spec
