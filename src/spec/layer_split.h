// Which decoder layers each pipeline stage holds: Megatron-LM's rules, and an automatic split where they do not divide.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::spec {

struct LayerSplit {
  std::int64_t num_layers = 0;
  int pipeline_parallel = 1;
  int chunks = 1;                                     // virtual stages per pipeline rank
  std::optional<std::int64_t> first = {}, last = {};  // layers of the first and last rank
  bool account_for_embedding = false, account_for_loss = false;
  bool chunks_fixed = false;  // by the schedule: other numbers of chunks are no advice
};

/// Layers of one run of consecutive layers: [first, first + count).
struct LayerRange {
  std::int64_t first = 0, count = 0;
  bool operator==(const LayerRange&) const = default;
};

/// ranges[rank][chunk]. Evenly divided as Megatron-LM does. Where one chunk per rank does not divide and no option asks
/// for a split, the remainder goes one layer each to the middle stages (the ends also hold embedding and head): the
/// ranges stay in order and cover all layers.
/// Throws ConfigError with the numbers where no split exists: never drops a layer.
std::vector<std::vector<LayerRange>> split_layers(const LayerSplit& split);
/// True where split_layers must fall back on the automatic uneven split.
bool needs_automatic_split(const LayerSplit& split);
/// Layers of each virtual stage, counted chunk by chunk and within a chunk rank by rank.
std::vector<std::int64_t> layers_per_stage(const std::vector<std::vector<LayerRange>>& ranges);

/// A pipeline layout ("E|t*3|(t|)*5mL"): what each stage holds, one string of E (embedding), t (decoder layer),
/// m (multi-token-prediction layer), L (loss) per stage.
std::vector<std::string> parse_pipeline_layout(std::string_view layout);
/// ranges[rank][chunk] of a layout; stage s stands on rank s mod pp, chunk s ÷ pp. Checks the layout against the model
/// (first E, last L, all decoder layers, all m together and after the decoder) and throws ConfigError.
std::vector<std::vector<LayerRange>> split_by_layout(std::string_view layout, int pipeline_parallel,
                                                     std::int64_t num_layers, std::int64_t mtp_num_layers);
/// True where a valid layout gives the multi-token-prediction layers a stage without the loss.
bool layout_has_standalone_mtp(std::string_view layout);

}  // namespace megatron::spec
