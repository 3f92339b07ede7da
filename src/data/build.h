// From the description of a run's data to its train, validation and test data sets, with a report of what they hold.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/length_histogram.h"
#include "data/preprocess.h"
#include "data/samplers.h"
#include "data/split_builder.h"
#include "spec/run_spec.h"
#include "tokenizer/tokenizer.h"

namespace megatron::data {

/// How many samples a run asks of each split; unset: the whole split once.
struct RequestedSamples {
  std::optional<std::int64_t> train = 0, valid = 0, test = 0;
};

/// Megatron-LM's rule: train = train_samples or train_iters·gbs; valid = (train_iters / eval_interval +
/// 1)·eval_iters·n; test = eval_iters·n, n the evaluation's global batch. Without an evaluation interval, or with
/// --skip-train, valid is one evaluation.
RequestedSamples requested_samples(const spec::BatchSpec& batch);

struct BuildOptions {
  std::int64_t seq_length = 0;
  std::uint64_t seed = 1234;
  /// Ids at or above are refused. 0: not checked.
  std::int64_t vocab_size = 0;
  RequestedSamples requested;
  /// End of document and padding ids; null: none (mock data then end documents with vocab_size − 1).
  const tokenizer::Tokenizer* tokenizer = nullptr;
  int num_threads = 1;  // for the scan of the token ids, the indices and raw text
  /// What raw text is told with: a line, and how far its tokens are.
  std::function<void(const std::string&)> say;
  std::function<void(const PreprocessProgress&)> progress;
  /// Called often while raw text is made into tokens or waited for; what it throws ends the work.
  std::function<void()> interrupt;
};

/// One file's part in one split.
struct SourceReport {
  std::string split;                                      // "train", "valid", "test"
  std::string source;                                     // prefix or "mock"
  std::int64_t documents = 0, sequences = 0, tokens = 0;  // of the file's share in the split
  std::int64_t samples = 0;                               // that the run will draw from it
  double share = 1.0;                                     // of the split's samples
  double epochs = 0.0;                                    // passes over its tokens that those samples amount to
};

struct DataReport {
  std::vector<SourceReport> sources;
  LengthHistogram lengths;         // documents of the training split
  std::string first_sample;        // its text (ids without a tokenizer), cut
  std::vector<std::string> notes;  // one line each: evaluation disabled, short corpora, …
  /// A table, one line per source, then the notes; ends with a newline.
  std::string text() const;
  /// Five lines: size of each split, share and epochs of each source, lengths of documents, first sample, notes;
  /// without a newline at the end.
  std::string five_lines() const;
};

struct NamedDataset {
  std::string name;
  std::shared_ptr<const Dataset> dataset;
};

/// Null where a split has no share or no samples are asked of it.
struct Datasets {
  std::shared_ptr<const Dataset> train, valid, test;
  std::vector<NamedDataset> valid_sets;  // instead of `valid` with --multiple-validation-sets
  DataReport report;
};

/// Opens each file once, refuses ids ≥ vocab_size (naming file, document, position and id) and builds the indices.
/// A pure function of files, split, seed, length and requested numbers. Throws ConfigError or IoError.
Datasets build_datasets(const spec::DataSpec& spec, const BuildOptions& options);

/// One split of the data that `spec` names, of `num_samples` samples or (unset) the whole of it once, and what it
/// holds. Throws as build_datasets.
BuiltSplit build_one_split(const spec::DataSpec& spec, const BuildOptions& options, SplitName split,
                           std::optional<std::int64_t> num_samples, DataReport& report);

/// The order in which a run reads `dataset` (`--dataloader-type`), which starts after `consumed_samples`. Throws Error
/// when it cannot start there.
std::unique_ptr<SampleOrder> make_order(const spec::DataSpec& spec, const Dataset& dataset,
                                        std::int64_t micro_batch_size, std::int64_t dp_size,
                                        std::int64_t consumed_samples = 0);

}  // namespace megatron::data
