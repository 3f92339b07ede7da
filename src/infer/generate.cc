#include "infer/generate.h"

#include <algorithm>
#include <numeric>

#include "nn/pass.h"
#include "nn/weight_grad.h"
#include "pipeline/forward_pass.h"

namespace megatron::infer {
namespace {

/// Tokens [begin, begin + ids.size()) of one sequence as a micro-batch without labels.
nn::MicroBatch tokens_at(std::span<const std::int64_t> ids, std::int64_t begin) {
  nn::MicroBatch batch;
  batch.num_tokens = static_cast<std::int64_t>(ids.size());
  batch.ids.assign(ids.begin(), ids.end());
  batch.labels.assign(ids.size(), 0);
  batch.loss_mask.assign(ids.size(), 0.0F);
  batch.sequence_starts = {0, batch.num_tokens};
  batch.tokens.sample_index.assign(ids.size(), 0);
  batch.tokens.position.resize(ids.size());
  std::iota(batch.tokens.position.begin(), batch.tokens.position.end(), begin);
  nn::set_token_shard(batch, 0, 1);
  return batch;
}

class Generator {
 public:
  Generator(mesh::Rank& rank, model::Model& model, const spec::RunSpec& run, std::int64_t capacity)
      : rank_(rank), model_(model), run_(run) {
    cache_.capacity = capacity;
  }

  /// Runs `ids`, which start at position `begin`, and returns the token that follows them.
  std::int64_t next(std::span<const std::int64_t> ids, std::int64_t begin, const SamplingOptions& sampling) {
    const nn::MicroBatch batch = tokens_at(ids, begin);
    nn::WeightGradQueue queue(rank_.exec, nullptr);
    nn::Pass pass{rank_, rank_.exec, batch, begin == 0 ? nn::Mode::prefill : nn::Mode::decode, false, queue};
    pass.kv = &cache_;
    const mesh::Group& pp = rank_.mesh.pp;
    const Tensor logits =
        pipeline::forward_logits(pass, model_, run_, batch.num_tokens - 1, batch.num_tokens, "generate.hidden");
    Tensor token = rank_.exec.zeros({1}, DType::int64, MemoryKind::communication);
    if (logits.defined())
      token.data<std::int64_t>()[0] = sample_token(
          {logits.data<float>(), static_cast<std::size_t>(run_.model.vocab_size)}, sampling, begin + batch.num_tokens);
    cache_.length = begin + batch.num_tokens;
    const int last = model_.placement().rank_of(model_.placement().num_stages() - 1);
    if (!pp.trivial()) token = pp.communicator()->broadcast(std::move(token), last, "generate.token").wait();
    return token.data<std::int64_t>()[0];
  }

 private:
  mesh::Rank& rank_;
  model::Model& model_;
  const spec::RunSpec& run_;
  nn::KvCache cache_;
};

}  // namespace

void check_prompt_length(std::int64_t prompt_tokens, const spec::RunSpec& run) {
  const std::int64_t positions = run.model.max_position_embeddings;
  if (prompt_tokens > positions)
    throw ConfigError(str_cat("the prompt has ", prompt_tokens, " tokens, the model ", positions,
                              " positions (max_position_embeddings): shorten the prompt"));
  if (prompt_tokens < 1) throw ConfigError("the prompt is empty: give at least one token");
}

std::vector<std::int64_t> generate(mesh::Rank& rank, model::Model& model, const spec::RunSpec& run,
                                   std::span<const std::int64_t> prompt, const GenerateOptions& options,
                                   const std::function<void(std::int64_t)>& on_token) {
  const auto prompt_size = static_cast<std::int64_t>(prompt.size());
  check_prompt_length(prompt_size, run);
  check_sampling(options.sampling, run.model.vocab_size);
  MEGATRON_CHECK(!run.parallel.sequence_parallel, "generation runs without sequence parallelism");
  // The last token needs no place in the cache: nothing is computed from it.
  const std::int64_t last = std::min(run.model.max_position_embeddings, prompt_size + options.num_tokens);
  Generator generator(rank, model, run, last);
  std::vector<std::int64_t> text(prompt.begin(), prompt.end());
  std::int64_t done = 0;
  while (static_cast<std::int64_t>(text.size()) < last) {
    const std::span<const std::int64_t> fresh =
        std::span<const std::int64_t>(text).subspan(static_cast<std::size_t>(done));
    const std::int64_t token = generator.next(fresh, done, options.sampling);
    done = static_cast<std::int64_t>(text.size());
    text.push_back(token);
    if (on_token != nullptr) on_token(token);
    if (options.eod == token) break;
  }
  return {text.begin() + prompt_size, text.end()};
}

}  // namespace megatron::infer
