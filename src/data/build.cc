#include "data/build.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "data/indexed_dataset.h"
#include "data/mock_dataset.h"
#include "data/split_builder.h"
#include "data/tokenizer_stamp.h"
#include "spec/batch_schedule.h"

namespace megatron::data {
namespace {

constexpr const char* kMockName = "mock";
constexpr std::array<const char*, 3> kLongNames = {"training", "validation", "test"};

/// Opens and checks every file once.
class SourceCache {
 public:
  SourceCache(const spec::DataSpec& spec, const BuildOptions& options) : spec_(spec), options_(options) {}

  std::shared_ptr<const SequenceSource> open(const std::string& prefix) {
    auto& source = sources_[prefix];
    if (!source) source = spec_.mock_data ? open_mock() : open_file(prefix);
    return source;
  }
  /// Documents in a range of sequences; sequences where documents have no boundaries of their own.
  std::int64_t documents(const std::string& prefix, const IndexRange& range) {
    const auto* file = dynamic_cast<const IndexedDataset*>(open(prefix).get());
    if (file == nullptr) return range.size();
    std::int64_t count = 0;
    for (std::int64_t d = 0; d < file->num_documents(); ++d)
      count += file->document_start(d) >= range.begin && file->document_start(d) < range.end ? 1 : 0;
    return count;
  }

 private:
  std::shared_ptr<const SequenceSource> open_mock() const {
    const tokenizer::Tokenizer* tokenizer = options_.tokenizer;
    const std::int64_t vocab_size = tokenizer != nullptr ? tokenizer->vocab_size() : options_.vocab_size;
    std::optional<std::int64_t> eod;
    if (tokenizer != nullptr) eod = tokenizer->eod();
    return std::make_shared<const MockSource>(vocab_size, eod.value_or(vocab_size - 1));
  }

  std::shared_ptr<const SequenceSource> open_file(const std::string& prefix) const {
    auto file = std::make_shared<const IndexedDataset>(prefix);
    if (options_.tokenizer != nullptr) check_stamp(prefix, *options_.tokenizer);
    if (options_.vocab_size > 0) {
      if (const auto bad = find_bad_token(*file, options_.vocab_size, options_.num_threads))
        throw ConfigError(str_cat(prefix, ".bin: document ", bad->document, ", position ", bad->position, ": token id ",
                                  bad->id, " is outside the vocabulary of ", options_.vocab_size, " (ids 0 to ",
                                  options_.vocab_size - 1, "); was it made by another tokenizer?"));
    }
    return file;
  }

  const spec::DataSpec& spec_;
  const BuildOptions& options_;
  std::map<std::string, std::shared_ptr<const SequenceSource>> sources_;
};

struct SplitSource {
  Blend blend;
  std::optional<SplitShare> share;
};

std::array<SplitSource, 3> split_sources(const spec::DataSpec& spec) {
  const std::array<const std::vector<std::string>*, 3> lists = {&spec.train_data_path, &spec.valid_data_path,
                                                                &spec.test_data_path};
  const bool per_split = !lists[0]->empty() || !lists[1]->empty() || !lists[2]->empty();
  if ((spec.mock_data ? 1 : 0) + (spec.data_path.empty() ? 0 : 1) + (per_split ? 1 : 0) > 1)
    throw ConfigError(
        "--data-path, --train-data-path (with --valid-data-path, --test-data-path) and --mock-data exclude "
        "each other");
  std::array<SplitSource, 3> sources;
  if (per_split) {
    constexpr std::array<const char*, 3> kOptions = {"--train-data-path", "--valid-data-path", "--test-data-path"};
    for (std::size_t i = 0; i < 3; ++i) {
      sources[i].blend = parse_blend(*lists[i], kOptions[i]);
      if (!lists[i]->empty()) sources[i].share = SplitShare{};
    }
    return sources;
  }
  if (!spec.mock_data && spec.data_path.empty())
    throw ConfigError("no training data: give --data-path, --train-data-path or --mock-data");
  const Blend blend = spec.mock_data ? Blend{{kMockName}, {}} : parse_blend(spec.data_path, "--data-path");
  const SplitMatrix matrix = parse_split(spec.mock_data ? "1,1,1" : spec.split);
  for (std::size_t i = 0; i < 3; ++i) sources[i] = {blend, matrix[i]};
  return sources;
}

GptDatasetConfig dataset_config(const spec::DataSpec& spec, const BuildOptions& options, DataReport& report) {
  GptDatasetConfig config;
  config.index.seq_length = options.seq_length;
  config.index.seed = options.seed;
  config.reset_position_ids = spec.reset_position_ids;
  config.reset_attention_mask = spec.reset_attention_mask;
  config.eod_mask_loss = spec.eod_mask_loss;
  if (options.tokenizer != nullptr) {
    config.eod = options.tokenizer->eod();
    config.pad = usable_pad(options.tokenizer->pad(), config.eod);
    if (config.pad != options.tokenizer->pad())
      report.notes.push_back(str_cat("padding id ", options.tokenizer->pad(),
                                     " is also the end of a document: padding is not masked by id"));
  }
  return config;
}

void refuse_short(const BuiltSplit& built, std::size_t split, const BuildOptions& options, DataReport& report) {
  for (const SplitMember& member : built.members) {
    const std::int64_t tokens = member.dataset->index().plan.tokens_per_epoch;
    if (tokens > options.seq_length) continue;
    const std::string text =
        str_cat(member.prefix, ": the ", kSplitNames[split], " split has ", tokens, " tokens; one sample of length ",
                options.seq_length, " needs at least ", options.seq_length + 1);
    if (split == 0) throw ConfigError(text);
    report.notes.push_back(text + "; its samples repeat them");
  }
}

void report_split(const BuiltSplit& built, std::size_t split, const BuildOptions& options, SourceCache& cache,
                  DataReport& report) {
  for (std::size_t i = 0; i < built.members.size(); ++i) {
    const SplitMember& member = built.members[i];
    SourceReport source;
    source.split = kSplitNames[split];
    source.source = member.prefix;
    source.documents = cache.documents(member.prefix, member.range);
    source.sequences = member.range.size();
    source.tokens = member.dataset->index().plan.tokens_per_epoch;
    source.samples = member.drawn;
    source.share = built.weights.empty() ? 1.0 : built.weights[i];
    source.epochs = static_cast<double>(member.drawn) * static_cast<double>(options.seq_length) /
                    static_cast<double>(std::max<std::int64_t>(source.tokens, 1));
    report.sources.push_back(source);
  }
}

// True if a member of the blend has no sequence in the split's share.
bool has_empty_member(const SplitSource& source, SourceCache& cache) {
  return std::any_of(source.blend.prefixes.begin(), source.blend.prefixes.end(), [&](const std::string& prefix) {
    return split_range(*source.share, cache.open(prefix)->num_sequences()).size() == 0;
  });
}

std::shared_ptr<const Dataset> build_one(std::size_t split, const SplitSource& source,
                                         const std::optional<std::int64_t>& wanted, const GptDatasetConfig& config,
                                         const spec::DataSpec& spec, const BuildOptions& options, SourceCache& cache,
                                         DataReport& report) {
  if (!source.share || (wanted && *wanted == 0)) {
    const char* reason = source.share ? "no samples are asked of it" : "it has no share of the data";
    if (split > 0) report.notes.push_back(str_cat(kLongNames[split], " is disabled: ", reason));
    return nullptr;
  }
  // The default split of a small corpus may leave nothing for a test: nobody asked for that split by name.
  if (split > 0 && !spec.split_given && has_empty_member(source, cache)) {
    report.notes.push_back(
        str_cat(kLongNames[split], " is disabled: its share of the default split holds no document"));
    return nullptr;
  }
  SplitRequest request;
  request.name = static_cast<SplitName>(split);
  request.blend = source.blend;
  request.share = *source.share;
  request.num_samples = wanted;
  request.surplus = spec.mid_level_dataset_surplus;
  request.config = config;
  const BuiltSplit built = build_split(request, [&cache](const std::string& prefix) { return cache.open(prefix); });
  if (built.dataset->size() == 0)
    throw ConfigError(str_cat(built.members[0].prefix, ": the ", kSplitNames[split], " split needs at least ",
                              options.seq_length + 1, " tokens, has ",
                              built.members[0].dataset->index().plan.tokens_per_epoch));
  refuse_short(built, split, options, report);
  report_split(built, split, options, cache, report);
  return built.dataset;
}

}  // namespace

RequestedSamples requested_samples(const spec::BatchSpec& batch) {
  const std::int64_t gbs = batch.global_batch_size, eval_gbs = batch.eval_global_batch_size.value_or(gbs);
  const spec::BatchSchedule batches(batch);
  const std::int64_t train =
      batch.train_samples.value_or(batch.train_iters ? batches.samples_after(*batch.train_iters) : 0);
  const std::int64_t iters = gbs > 0 ? spec::train_iterations(batch).value_or(0) : batch.train_iters.value_or(0);
  std::int64_t evaluations = 1;
  if (!batch.skip_train && batch.eval_interval && *batch.eval_interval > 0) evaluations += iters / *batch.eval_interval;
  return {batch.skip_train ? 0 : train, evaluations * batch.eval_iters * eval_gbs, batch.eval_iters * eval_gbs};
}

Datasets build_datasets(const spec::DataSpec& spec, const BuildOptions& options) {
  MEGATRON_CHECK_GT(options.seq_length, 0);
  if (options.tokenizer != nullptr && options.vocab_size > 0 && options.tokenizer->vocab_size() > options.vocab_size)
    throw ConfigError(str_cat("the tokenizer ", options.tokenizer->type(), " has ", options.tokenizer->vocab_size(),
                              " ids, the model's vocabulary only ", options.vocab_size));
  Datasets datasets;
  const std::array<SplitSource, 3> sources = split_sources(spec);
  const GptDatasetConfig config = dataset_config(spec, options, datasets.report);
  SourceCache cache(spec, options);
  const auto build = [&](std::size_t split, const std::optional<std::int64_t>& wanted) {
    return build_one(split, sources[split], wanted, config, spec, options, cache, datasets.report);
  };
  datasets.train = build(0, options.requested.train);
  datasets.valid = build(1, options.requested.valid);
  datasets.test = build(2, options.requested.test);
  return datasets;
}

std::unique_ptr<SampleOrder> make_order(const spec::DataSpec& spec, const Dataset& dataset,
                                        std::int64_t micro_batch_size, std::int64_t dp_size,
                                        std::int64_t consumed_samples) {
  std::unique_ptr<SampleOrder> order;
  if (spec.dataloader_type == spec::DataloaderType::cyclic)
    order = std::make_unique<CyclicOrder>(dataset.size(), micro_batch_size, dp_size);
  else
    order = std::make_unique<SequentialOrder>(dataset.size());
  order->check_start(consumed_samples);
  return order;
}

}  // namespace megatron::data
