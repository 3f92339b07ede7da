#include "data/gpt_index.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/units.h"
#include "data/random_state.h"

namespace megatron::data {
namespace {

using Length = std::function<std::int64_t(std::int64_t)>;

std::int64_t checked_product(std::int64_t a, std::int64_t b, const char* what) {
  if (b != 0 && a > (std::numeric_limits<std::int64_t>::max() - 1) / b)
    throw ConfigError(str_cat(what, ": ", a, " times ", b, " does not fit into 63 bits"));
  return a * b;
}

/// As the reference computes it: single precision, so large counts are rounded.
std::int64_t samples_with_partial(std::int64_t tokens, std::int64_t seq_length) {
  return static_cast<std::int64_t>(std::ceil(static_cast<float>(tokens) / static_cast<float>(seq_length)));
}

IndexArray build_documents(const GptIndexPlan& plan, const IndexRange& range, RandomState& random) {
  IndexArray documents(plan.num_documents, range.end);
  for (std::int64_t i = 0; i < plan.num_documents; ++i) documents.set(i, range.begin + i % range.size());
  const std::int64_t last = plan.separate_last_epoch ? range.size() : 0;
  random.shuffle(documents, 0, plan.num_documents - last);
  random.shuffle(documents, plan.num_documents - last, last);
  return documents;
}

void build_sample_starts(const GptIndexConfig& config, std::int64_t longest, const Length& length, GptIndex& index) {
  const std::int64_t x = config.extra_token ? 1 : 0, samples = index.plan.num_samples;
  index.sample_document = IndexArray(samples + 1, index.plan.num_documents);
  index.sample_offset = IndexArray(samples + 1, longest);
  std::int64_t document = 0, offset = 0;
  for (std::int64_t sample = 1; sample <= samples; ++sample) {
    std::int64_t remaining = config.seq_length + x;
    for (;;) {
      const std::int64_t available = length(index.documents[document]) - offset;
      remaining -= available;
      if (remaining <= 0) {
        offset += remaining + available - x;
        break;
      }
      if (document == index.plan.num_documents - 1) {
        MEGATRON_CHECK(!config.drop_last_partial && sample == samples, "sample ", sample, " of ", samples,
                       " runs past the last token");
        offset = length(index.documents[document]) - x;
        break;
      }
      ++document;
      offset = 0;
    }
    index.sample_document.set(sample, document);
    index.sample_offset.set(sample, offset);
  }
}

IndexArray build_order(const GptIndexPlan& plan, RandomState& random) {
  IndexArray order(plan.num_samples, plan.num_samples);
  for (std::int64_t i = 0; i < plan.num_samples; ++i) order.set(i, i);
  const std::int64_t first = plan.separate_last_epoch ? plan.samples_before_last_epoch : plan.num_samples;
  random.shuffle(order, 0, first);
  random.shuffle(order, first, plan.num_samples - first);
  return order;
}

}  // namespace

GptIndexPlan plan_gpt_index(const GptIndexConfig& config, std::int64_t num_sequences, std::int64_t tokens_per_epoch) {
  MEGATRON_CHECK_GT(config.seq_length, 0);
  const std::int64_t x = config.extra_token ? 1 : 0, length = config.seq_length;
  GptIndexPlan plan;
  plan.tokens_per_epoch = tokens_per_epoch;
  if (tokens_per_epoch < 1 || (!config.num_samples && tokens_per_epoch < 2))
    throw ConfigError(str_cat("has ", num_sequences, " sequences with ", tokens_per_epoch,
                              " tokens, but samples are asked of it: give it documents (--split) or ask for none"));
  if (config.num_samples) {
    MEGATRON_CHECK_GE(*config.num_samples, 0);
    const std::int64_t wanted = checked_product(*config.num_samples, length, "samples times sequence length") + x;
    plan.num_epochs = std::max<std::int64_t>(1, (wanted - 1) / tokens_per_epoch + 1);
  }
  plan.num_documents = checked_product(plan.num_epochs, num_sequences, "epochs times sequences");
  const std::int64_t tokens = checked_product(plan.num_epochs, tokens_per_epoch, "epochs times tokens");
  if (plan.num_epochs > 1) {
    plan.samples_before_last_epoch = (tokens - tokens_per_epoch - x) / length;
    const std::int64_t last = *config.num_samples - plan.samples_before_last_epoch;
    const std::int64_t per_epoch = (tokens_per_epoch - x) / length;
    MEGATRON_CHECK(last >= 0 && last <= per_epoch + 1, "last epoch holds ", last, " of ", per_epoch, " samples");
    plan.separate_last_epoch = last < static_cast<std::int64_t>(0.80 * static_cast<double>(per_epoch));
  }
  plan.num_samples = config.drop_last_partial ? (tokens - x) / length : samples_with_partial(tokens - x, length);
  return plan;
}

GptIndex build_gpt_index(const GptIndexConfig& config, const IndexRange& range, const Length& length) {
  std::int64_t tokens = 0, longest = 0;
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    tokens += length(i);
    longest = std::max(longest, length(i));
  }
  GptIndex index;
  index.plan = plan_gpt_index(config, range.size(), tokens);
  RandomState random(config.seed);
  index.documents = build_documents(index.plan, range, random);
  build_sample_starts(config, longest, length, index);
  index.order = build_order(index.plan, random);
  return index;
}

}  // namespace megatron::data
