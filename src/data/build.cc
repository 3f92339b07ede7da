#include "data/build.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "data/data_paths.h"
#include "data/indexed_dataset.h"
#include "data/mock_dataset.h"
#include "data/raw_text.h"
#include "data/split_builder.h"
#include "data/tokenizer_stamp.h"
#include "spec/batch_schedule.h"

namespace megatron::data {
namespace {

constexpr const char* kMockName = "mock";
constexpr std::int64_t kShownTokens = 64;
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
    if (is_float(file->type()))
      throw ConfigError(str_cat(prefix, ".idx: offset 17: holds ", token_type_name(file->type()),
                                " values; a run trains on token ids (uint8, int8, int16, uint16, int32 or int64)"));
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

bool per_split(const spec::DataSpec& spec) {
  return !spec.train_data_path.empty() || !spec.valid_data_path.empty() || !spec.test_data_path.empty();
}

struct SplitSource {
  Blend blend;
  std::optional<SplitShare> share;
};

std::array<SplitSource, 3> split_sources(const spec::DataSpec& spec) {
  const std::array<const std::vector<std::string>*, 3> lists = {&spec.train_data_path, &spec.valid_data_path,
                                                                &spec.test_data_path};
  const bool split_paths = per_split(spec);
  if ((spec.mock_data ? 1 : 0) + (spec.data_path.empty() ? 0 : 1) + (split_paths ? 1 : 0) > 1)
    throw ConfigError(
        "--data-path, --train-data, --train-data-path (with --valid-data-path, --test-data-path) and --mock-data "
        "exclude each other");
  std::array<SplitSource, 3> sources;
  if (split_paths) {
    constexpr std::array<const char*, 3> kOptions = {"--train-data-path", "--valid-data-path", "--test-data-path"};
    for (std::size_t i = 0; i < 3; ++i) {
      sources[i].blend = parse_blend(*lists[i], kOptions[i]);
      if (!lists[i]->empty()) sources[i].share = SplitShare{};
    }
    return sources;
  }
  if (!spec.mock_data && spec.data_path.empty())
    throw ConfigError("no training data: give --data-path, --train-data, --train-data-path or --mock-data");
  const Blend blend = spec.mock_data ? Blend{{kMockName}, {}} : parse_blend(spec.data_path, "--data-path");
  const SplitMatrix matrix = parse_split(spec.mock_data ? "1,1,1" : spec.split);
  for (std::size_t i = 0; i < 3; ++i) sources[i] = {blend, matrix[i]};
  return sources;
}

/// Raw text becomes an indexed data set, files of paths become lists.
spec::DataSpec with_files(const spec::DataSpec& given, const BuildOptions& options) {
  spec::DataSpec spec = resolve_data_paths(given);
  if (spec.train_data.empty()) return spec;
  if (!spec.data_path.empty() || per_split(spec) || spec.mock_data)
    throw ConfigError("--train-data and the other options that name data exclude each other");
  if (options.tokenizer == nullptr) throw ConfigError("--train-data: needs --tokenizer-type");
  if (!spec.data_cache_path)
    throw ConfigError("--train-data: needs --data-cache-path DIR, where its tokens are kept between runs");
  RawTextConfig raw;
  raw.sources = spec.train_data;
  raw.json_keys = spec.json_keys;
  raw.append_eod = options.tokenizer->eod().has_value();
  raw.cache_folder = *spec.data_cache_path;
  raw.workers = options.num_threads;
  raw.say = options.say;
  raw.report = options.progress;
  raw.interrupt = options.interrupt;
  spec.data_path = tokenize_raw_text(raw, *options.tokenizer);
  spec.train_data.clear();
  return spec;
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

/// Lengths of the training documents; sequences stand for documents where a file has more of them.
void describe_documents(const BuiltSplit& built, SourceCache& cache, DataReport& report) {
  for (const SplitMember& member : built.members) {
    const auto source = cache.open(member.prefix);
    for (std::int64_t i = member.range.begin; i < member.range.end; ++i) report.lengths.add(source->length(i));
  }
}

std::string text_of(const Sample& sample, const tokenizer::Tokenizer* tokenizer) {
  const auto count = std::min<std::ptrdiff_t>(std::ssize(sample.tokens), kShownTokens);
  const std::span<const std::int64_t> ids(sample.tokens.data(), static_cast<std::size_t>(count));
  if (tokenizer != nullptr) {
    try {
      return tokenizer->decode(ids, "<eod>");
    } catch (const Error&) {
      // The ids are shown instead.
    }
  }
  std::string text;
  for (const std::int64_t id : ids) text += (text.empty() ? "" : " ") + std::to_string(id);
  return text;
}

/// Builds the splits of one description.
class SplitFactory {
 public:
  SplitFactory(const spec::DataSpec& given, const BuildOptions& options, DataReport& report)
      : spec_(with_files(given, options)),
        options_(options),
        report_(report),
        sources_(split_sources(spec_)),
        config_(dataset_config(spec_, options, report)),
        cache_(spec_, options) {}

  /// Nothing where the split has no share or nothing is asked of it, which a note then says.
  std::optional<BuiltSplit> build(std::size_t split, const std::optional<std::int64_t>& wanted) {
    const SplitSource& source = sources_[split];
    if (!source.share || (wanted && *wanted == 0)) {
      const char* reason = source.share ? "no samples are asked of it" : "it has no share of the data";
      if (split > 0) report_.notes.push_back(str_cat(kLongNames[split], " is disabled: ", reason));
      return {};
    }
    // The default split of a small corpus may leave nothing for a test: nobody asked for that split by name.
    if (split > 0 && !spec_.split_given && has_empty_member(source, cache_)) {
      report_.notes.push_back(
          str_cat(kLongNames[split], " is disabled: its share of the default split holds no document"));
      return {};
    }
    return build_from(split, source.blend, wanted);
  }

  std::shared_ptr<const Dataset> dataset(std::size_t split, const std::optional<std::int64_t>& wanted) {
    const std::optional<BuiltSplit> built = build(split, wanted);
    return built ? built->dataset : nullptr;
  }

  /// Each file of the validation blend on its own.
  std::vector<NamedDataset> validation_sets(const std::optional<std::int64_t>& wanted) {
    const Blend& blend = sources_[1].blend;
    if (blend.weights)
      throw ConfigError("--multiple-validation-sets: each set is evaluated on its own; leave out the weights");
    std::vector<NamedDataset> sets;
    if (!sources_[1].share || (wanted && *wanted == 0)) return sets;
    for (const std::string& prefix : blend.prefixes)
      sets.push_back({prefix, build_from(1, Blend{{prefix}, {}}, wanted).dataset});
    return sets;
  }

  void describe(const BuiltSplit& built) {
    describe_documents(built, cache_, report_);
    report_.first_sample = text_of(built.dataset->get(0), options_.tokenizer);
  }

 private:
  BuiltSplit build_from(std::size_t split, const Blend& blend, const std::optional<std::int64_t>& wanted) {
    SplitRequest request;
    request.name = static_cast<SplitName>(split);
    request.blend = blend;
    request.share = *sources_[split].share;
    request.num_samples = wanted;
    request.surplus = spec_.mid_level_dataset_surplus;
    request.config = config_;
    request.num_threads = static_cast<int>(std::clamp<std::int64_t>(
        spec_.num_dataset_builder_threads.value_or(options_.num_threads), 1, kMostBuilderThreads));
    if (spec_.data_cache_path && !spec_.mock_data) request.cache = index_cache();
    BuiltSplit built = build_split(request, [this](const std::string& prefix) { return cache_.open(prefix); });
    if (built.dataset->size() == 0)
      throw ConfigError(str_cat(built.members[0].prefix, ": the ", kSplitNames[split], " split needs at least ",
                                options_.seq_length + 1, " tokens, has ",
                                built.members[0].dataset->index().plan.tokens_per_epoch));
    refuse_short(built, split, options_, report_);
    report_split(built, split, options_, cache_, report_);
    for (const SplitMember& member : built.members)
      if (!member.note.empty()) report_.notes.push_back(member.note);
    if (!built.note.empty()) report_.notes.push_back(built.note);
    return built;
  }

  IndexCache index_cache() const {
    IndexCache cache;
    cache.folder = *spec_.data_cache_path;
    if (!per_split(spec_)) cache.split = spec_.split;
    if (options_.tokenizer != nullptr) cache.tokenizer = tokenizer_description(*options_.tokenizer);
    return cache;
  }

  static constexpr std::int64_t kMostBuilderThreads = 256;
  spec::DataSpec spec_;
  const BuildOptions& options_;
  DataReport& report_;
  std::array<SplitSource, 3> sources_;
  GptDatasetConfig config_;
  SourceCache cache_;
};

void check_options(const BuildOptions& options) {
  MEGATRON_CHECK_GT(options.seq_length, 0);
  if (options.tokenizer != nullptr && options.vocab_size > 0 && options.tokenizer->vocab_size() > options.vocab_size)
    throw ConfigError(str_cat("the tokenizer ", options.tokenizer->type(), " has ", options.tokenizer->vocab_size(),
                              " ids, the model's vocabulary only ", options.vocab_size));
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
  check_options(options);
  Datasets datasets;
  SplitFactory factory(spec, options, datasets.report);
  if (const auto train = factory.build(0, options.requested.train)) {
    datasets.train = train->dataset;
    factory.describe(*train);
  }
  std::optional<std::int64_t> valid = options.requested.valid;
  if (spec.full_validation && valid != 0) valid.reset();
  if (spec.multiple_validation_sets)
    datasets.valid_sets = factory.validation_sets(valid);
  else
    datasets.valid = factory.dataset(1, valid);
  datasets.test = factory.dataset(2, options.requested.test);
  return datasets;
}

BuiltSplit build_one_split(const spec::DataSpec& spec, const BuildOptions& options, SplitName split,
                           std::optional<std::int64_t> num_samples, DataReport& report) {
  check_options(options);
  SplitFactory factory(spec, options, report);
  std::optional<BuiltSplit> built = factory.build(static_cast<std::size_t>(split), num_samples);
  if (!built)
    throw ConfigError(report.notes.empty() ? str_cat("the ", kSplitNames[static_cast<std::size_t>(split)],
                                                     " split has no share of the data or no samples are asked of it")
                                           : report.notes.back());
  factory.describe(*built);
  return std::move(*built);
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
