#include "data/gpt_dataset.h"

#include <algorithm>

#include "base/check.h"

namespace megatron::data {

Sample Dataset::filler() const {
  Sample sample = get(0);
  std::fill(sample.loss_mask.begin(), sample.loss_mask.end(), 0.0F);
  return sample;
}

std::int64_t usable_pad(std::int64_t pad, std::optional<std::int64_t> eod, bool allow_ambiguous) {
  return eod && pad == *eod && !allow_ambiguous ? -1 : pad;
}

GptDataset::GptDataset(std::shared_ptr<const SequenceSource> source, const IndexRange& range,
                       const GptDatasetConfig& config)
    : GptDataset(source, config,
                 build_gpt_index(config.index, range, [&source](std::int64_t i) { return source->length(i); })) {}

GptDataset::GptDataset(std::shared_ptr<const SequenceSource> source, const GptDatasetConfig& config, GptIndex index)
    : source_(std::move(source)), config_(config), index_(std::move(index)) {
  if (!config.eod && (config.reset_position_ids || config.reset_attention_mask || config.eod_mask_loss))
    throw ConfigError(str_cat(config.reset_position_ids     ? "--reset-position-ids"
                              : config.reset_attention_mask ? "--reset-attention-mask"
                                                            : "--eod-mask-loss",
                              ": needs a tokenizer with an end-of-document token"));
}

std::vector<std::int64_t> GptDataset::text(std::int64_t sample, std::vector<std::int64_t>& joins) const {
  const std::int64_t x = config_.index.extra_token ? 1 : 0;
  const std::int64_t first = index_.sample_document[sample], last = index_.sample_document[sample + 1];
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(config_.index.seq_length + x), config_.pad);
  std::int64_t at = 0;
  for (std::int64_t document = first; document <= last; ++document) {
    const std::int64_t sequence = index_.documents[document];
    const std::int64_t begin = document == first ? index_.sample_offset[sample] : 0;
    const std::int64_t end = document == last ? index_.sample_offset[sample + 1] + x : source_->length(sequence);
    MEGATRON_CHECK(begin <= end && at + end - begin <= std::ssize(tokens), "sample ", sample, " is too long");
    source_->read(sequence, begin, end - begin, tokens.data() + at);
    at += end - begin;
    if (document < last) joins.push_back(at);
  }
  return tokens;
}

void GptDataset::apply_joins(const std::vector<std::int64_t>& joins, Sample& sample) const {
  for (const std::int64_t join : joins)
    if (join > sample.sequence_starts.back() && join < config_.index.seq_length) sample.sequence_starts.push_back(join);
  for (std::size_t s = 0; s < sample.sequence_starts.size(); ++s) {
    const std::int64_t begin = sample.sequence_starts[s];
    const bool is_last = s + 1 == sample.sequence_starts.size();
    const std::int64_t end = is_last ? config_.index.seq_length : sample.sequence_starts[s + 1];
    for (std::int64_t i = begin; i < end; ++i) sample.position_ids[static_cast<std::size_t>(i)] = i - begin;
  }
}

void GptDataset::apply_document_ends(Sample& sample) const {
  const auto length = static_cast<std::int64_t>(sample.tokens.size());
  std::int64_t start = 0;
  for (std::int64_t i = 0; i < length; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (config_.reset_position_ids) sample.position_ids[at] = i - start;
    if (sample.tokens[at] != config_.eod) continue;
    if (config_.eod_mask_loss) sample.loss_mask[at] = 0.0F;
    if (config_.reset_attention_mask && i + 1 < length) sample.sequence_starts.push_back(i + 1);
    start = i + 1;
  }
}

Sample GptDataset::get(std::int64_t index) const {
  MEGATRON_CHECK(index >= 0 && index < size(), "sample ", index, " of ", size());
  std::vector<std::int64_t> joins;
  std::vector<std::int64_t> tokens = text(index_.order[index], joins);
  const auto length = static_cast<std::size_t>(config_.index.seq_length);
  Sample sample;
  sample.labels.assign(tokens.begin() + 1, tokens.end());
  if (!config_.index.extra_token) sample.labels.push_back(config_.pad);
  tokens.resize(length);
  sample.tokens = std::move(tokens);
  sample.loss_mask.assign(length, 1.0F);
  sample.position_ids.resize(length);
  for (std::size_t i = 0; i < length; ++i) sample.position_ids[i] = static_cast<std::int64_t>(i);
  sample.sequence_starts = {0};
  if (config_.inter_document_masking)
    apply_joins(joins, sample);
  else
    apply_document_ends(sample);
  sample.sequence_starts.push_back(static_cast<std::int64_t>(length));
  for (std::size_t i = 0; i < length; ++i) {
    if (sample.labels[i] == config_.pad) {
      sample.labels[i] = 0;
      sample.loss_mask[i] = 0.0F;
    }
    if (sample.tokens[i] == config_.pad) sample.tokens[i] = 0;
  }
  return sample;
}

}  // namespace megatron::data
