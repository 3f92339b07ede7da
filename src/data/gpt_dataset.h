// Samples of fixed length cut from shuffled token sequences: Megatron-LM's GPTDataset over one source and one split.
#pragma once

#include <memory>
#include <optional>

#include "data/dataset.h"
#include "data/gpt_index.h"
#include "data/sequence_source.h"

namespace megatron::data {

struct GptDatasetConfig {
  GptIndexConfig index;
  std::optional<std::int64_t> eod;    // end-of-document id; needed by the three options below
  std::int64_t pad = -1;              // padding id: labels equal to it are masked and become 0; −1: none
  bool reset_position_ids = false;    // positions restart after each end of document
  bool reset_attention_mask = false;  // tokens do not see what lies before an end of document
  bool eod_mask_loss = false;         // no loss where the input token is an end of document
  /// Sequences of the file do not see each other, and positions restart at their joins, whatever ids they hold.
  bool inter_document_masking = false;
};

/// The padding id to use: `pad`, or −1 where it would also mask the end of a document (unless `allow_ambiguous`).
std::int64_t usable_pad(std::int64_t pad, std::optional<std::int64_t> eod, bool allow_ambiguous = false);

class GptDataset final : public Dataset {
 public:
  /// `range` = the split's sequences. Throws ConfigError when they hold no tokens or an option lacks its id.
  GptDataset(std::shared_ptr<const SequenceSource> source, const IndexRange& range, const GptDatasetConfig& config);
  /// With an index made before from the same source, range and `config.index`.
  GptDataset(std::shared_ptr<const SequenceSource> source, const GptDatasetConfig& config, GptIndex index);

  std::int64_t size() const override { return index_.plan.num_samples; }
  Sample get(std::int64_t index) const override;
  const GptIndex& index() const { return index_; }

 private:
  /// Tokens of stream sample `sample`, padded to L + x; `joins` receives where one sequence of the file follows
  /// another.
  std::vector<std::int64_t> text(std::int64_t sample, std::vector<std::int64_t>& joins) const;
  void apply_joins(const std::vector<std::int64_t>& joins, Sample& sample) const;
  void apply_document_ends(Sample& sample) const;

  std::shared_ptr<const SequenceSource> source_;
  GptDatasetConfig config_;
  GptIndex index_;
};

}  // namespace megatron::data
