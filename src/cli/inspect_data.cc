// megatron inspect data: documents, tokens and lengths of data sets, and the samples that training will see.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/argument_parser.h"
#include "cli/inspect.h"
#include "cli/tokenizer_arguments.h"
#include "config/text_value.h"
#include "data/build.h"
#include "data/data_paths.h"
#include "data/index_md5.h"
#include "data/indexed_dataset.h"
#include "train/machine.h"

namespace megatron::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHelp =
    R"(usage: megatron inspect data --data-path ... [options]

Says what data sets hold and which samples training will see.

  --data-path [W] P [W P ...]   or --train-data-path, --valid-data-path, --test-data-path, --data-args-path,
                                --per-split-data-args-path, --train-data (with --data-cache-path), --mock-data
  --split S                     shares of training, validation, test (default: 969, 30, 1)
  --split-name NAME             train, valid or test (default: train)
  --seed N --seq-length L       as in training (default: 1234, 1024)
  --num-samples N               samples that are asked of the split (default: the whole split once)
  --samples A:B                 samples to print (default: 0:3 as text, none with --json)
  --eod-id N                    end of document of NullTokenizer
  --reset-position-ids, --reset-attention-mask, --eod-mask-loss, --mid-level-dataset-surplus as in training
  --json                        one JSON object
)";

struct Request {
  spec::DataSpec spec;
  TokenizerArguments tokenizer;
  std::string split, split_name = "train", samples, data_args, per_split_args, cache, surplus;
  std::int64_t seed = 1234, seq_length = 1024;
  std::optional<std::int64_t> num_samples, eod_id;
  bool json = false, help = false;
};

void add_rows(ArgumentParser& parser, Request& request) {
  spec::DataSpec& spec = request.spec;
  parser.list("--data-path", spec.data_path);
  parser.list("--train-data-path", spec.train_data_path);
  parser.list("--valid-data-path", spec.valid_data_path);
  parser.list("--test-data-path", spec.test_data_path);
  parser.list("--train-data", spec.train_data);
  parser.list("--json-keys", spec.json_keys);
  parser.text("--data-args-path", request.data_args);
  parser.text("--per-split-data-args-path", request.per_split_args);
  parser.text("--data-cache-path", request.cache);
  parser.text("--mid-level-dataset-surplus", request.surplus);
  parser.flag("--mock-data", spec.mock_data);
  parser.flag("--reset-position-ids", spec.reset_position_ids);
  parser.flag("--reset-attention-mask", spec.reset_attention_mask);
  parser.flag("--eod-mask-loss", spec.eod_mask_loss);
  parser.text("--split", request.split);
  parser.text("--split-name", request.split_name);
  parser.text("--samples", request.samples);
  parser.integer("--seed", request.seed, 0);
  parser.integer("--seq-length", request.seq_length, 1);
  parser.integer("--num-samples", request.num_samples, 1);
  parser.integer("--eod-id", request.eod_id, -1);
  parser.flag("--json", request.json);
  parser.flag("--help", request.help);
  parser.flag("-h", request.help);
  request.tokenizer.add_to(parser);
}

std::size_t split_index(const std::string& name) {
  for (std::size_t i = 0; i < data::kSplitNames.size(); ++i)
    if (name == data::kSplitNames[i]) return i;
  throw ConfigError(str_cat("--split-name ", name, ": known are train, valid, test"));
}

/// "A:B" within [0, size): samples A to B − 1.
std::pair<std::int64_t, std::int64_t> sample_range(const Request& request, std::int64_t size) {
  if (request.samples.empty()) return {0, request.json ? 0 : std::min<std::int64_t>(size, 3)};
  const std::size_t colon = std::min(request.samples.find(':'), request.samples.size() - 1);
  const auto first = config::parse_integer(std::string_view(request.samples).substr(0, colon));
  const auto last = config::parse_integer(std::string_view(request.samples).substr(colon + 1));
  if (!first || !last || *first < 0 || *last < *first)
    throw ConfigError(str_cat("--samples ", request.samples, ": must be A:B with 0 <= A <= B"));
  if (*last > size) throw ConfigError(str_cat("--samples ", request.samples, ": there are ", size, " samples"));
  return {*first, *last};
}

Json lengths_json(const data::LengthHistogram& lengths) {
  Json json;
  json["documents"] = lengths.count;
  json["shortest"] = lengths.shortest;
  json["longest"] = lengths.longest;
  json["histogram"] = Json::array();
  for (std::size_t b = 0; b < lengths.buckets.size(); ++b) {
    if (lengths.buckets[b] == 0) continue;
    const std::int64_t from = b == 0 ? 0 : std::int64_t{1} << (b - 1);
    json["histogram"].push_back({{"from", from}, {"to", b == 0 ? 0 : 2 * from - 1}, {"documents", lengths.buckets[b]}});
  }
  return json;
}

void add_index(const data::SplitMember& member, Json& json) {
  const data::GptIndex& index = member.dataset->index();
  const data::IndexMd5 sums = data::index_md5(index);
  json["num_epochs"] = index.plan.num_epochs;
  json["len"] = member.dataset->size();
  json["document_index_md5"] = sums.documents;
  json["sample_index_md5"] = sums.samples;
  json["shuffle_index_md5"] = sums.order;
}

Json tokenizer_json(const tokenizer::Tokenizer& tokenizer) {
  const auto id = [](const std::optional<std::int64_t>& value) { return value ? Json(*value) : Json(nullptr); };
  return {{"type", tokenizer.type()},
          {"vocab_size", tokenizer.vocab_size()},
          {"bos", id(tokenizer.bos())},
          {"eod", id(tokenizer.eod())},
          {"pad", tokenizer.pad() < 0 ? Json(nullptr) : Json(tokenizer.pad())},
          {"hash", tokenizer.identity_hash()}};
}

Json json_of(const Request& request, const data::BuiltSplit& built, const data::DataReport& report,
             const tokenizer::Tokenizer* tokenizer) {
  Json json;
  if (built.blend == nullptr) {
    add_index(built.members[0], json);
  } else {
    json["len"] = built.dataset->size();
  }
  json["split"] = request.split_name;
  json["sources"] = Json::array();
  for (std::size_t i = 0; i < report.sources.size(); ++i) {
    const data::SourceReport& source = report.sources[i];
    Json item = {{"source", source.source}, {"documents", source.documents}, {"sequences", source.sequences},
                 {"tokens", source.tokens}, {"samples", source.samples},     {"share", source.share},
                 {"epochs", source.epochs}};
    if (built.blend != nullptr) add_index(built.members[i], item);
    json["sources"].push_back(item);
  }
  json["lengths"] = lengths_json(report.lengths);
  json["tokenizer"] = tokenizer == nullptr ? Json(nullptr) : tokenizer_json(*tokenizer);
  json["notes"] = report.notes;
  json["samples"] = Json::array();
  const auto range = sample_range(request, built.dataset->size());
  for (std::int64_t i = range.first; i < range.second; ++i) {
    const data::Sample sample = built.dataset->get(i);
    json["samples"].push_back({{"tokens", sample.tokens},
                               {"labels", sample.labels},
                               {"loss_mask", sample.loss_mask},
                               {"position_ids", sample.position_ids}});
  }
  return json;
}

std::string readable(const data::Sample& sample, const tokenizer::Tokenizer* tokenizer) {
  std::string text;
  if (tokenizer != nullptr) text = tokenizer->decode(sample.tokens, "<eod>");
  if (tokenizer == nullptr)
    for (const std::int64_t id : sample.tokens) text += (text.empty() ? "" : " ") + std::to_string(id);
  return text;
}

void print_text(const Request& request, const data::BuiltSplit& built, const data::DataReport& report,
                const tokenizer::Tokenizer* tokenizer) {
  std::fputs(report.text().c_str(), stdout);
  std::printf("document lengths: %s\n", report.lengths.text().c_str());
  if (tokenizer != nullptr) std::printf("tokenizer: %s\n", tokenizer_json(*tokenizer).dump().c_str());
  const auto range = sample_range(request, built.dataset->size());
  for (std::int64_t i = range.first; i < range.second; ++i) {
    const data::Sample sample = built.dataset->get(i);
    double trained = 0;
    for (const float weight : sample.loss_mask) trained += static_cast<double>(weight);
    std::printf("--- sample %lld of %lld: %zu tokens, %.0f with a loss, %zu sequences\n%s\n", static_cast<long long>(i),
                static_cast<long long>(built.dataset->size()), sample.tokens.size(), trained,
                sample.sequence_starts.size() - 1, readable(sample, tokenizer).c_str());
  }
}

/// True if --data-path names files of floats. Throws ConfigError where floats and ids are mixed.
bool names_values(const std::vector<std::string>& prefixes) {
  const auto floats = std::count_if(prefixes.begin(), prefixes.end(), [](const std::string& prefix) {
    return data::is_float(data::stored_token_type(prefix));
  });
  if (floats > 0 && floats != std::ssize(prefixes))
    throw ConfigError("--data-path: some of the files hold token ids, others float values; look at them separately");
  return floats > 0;
}

void complete(const ArgumentParser& parser, Request& request, std::vector<std::string>& errors) {
  if (!request.split.empty()) request.spec.split = request.split;
  request.spec.split_given = parser.given("--split");
  if (!request.data_args.empty()) request.spec.data_args_path = request.data_args;
  if (!request.per_split_args.empty()) request.spec.per_split_data_args_path = request.per_split_args;
  if (!request.cache.empty()) request.spec.data_cache_path = request.cache;
  if (!request.surplus.empty()) {
    const std::optional<double> surplus = config::parse_real(request.surplus);
    request.spec.mid_level_dataset_surplus = surplus.value_or(0.0);
    if (!surplus || *surplus < 0)
      errors.push_back(str_cat("--mid-level-dataset-surplus ", request.surplus, ": must be a number of at least 0"));
  }
  // Ids need no tokenizer to be looked at; any number may be one.
  if (request.eod_id && request.tokenizer.type.empty()) request.tokenizer.type = "NullTokenizer";
  if (request.tokenizer.type == "NullTokenizer" && !request.tokenizer.options.vocab_size)
    request.tokenizer.options.vocab_size = std::int64_t{1} << 31;
  if (!request.eod_id) return;
  if (request.tokenizer.type != "NullTokenizer") errors.emplace_back("--eod-id: needs --tokenizer-type NullTokenizer");
  request.tokenizer.options.null_eod_id = request.eod_id;
}

}  // namespace

int inspect_data(Arguments args) {
  Request request;
  ArgumentParser parser;
  add_rows(parser, request);
  std::vector<std::string> errors = parser.parse(args);
  if (request.help) {
    std::printf("%s%s\n", kHelp, tokenizer_arguments_help().c_str());
    return 0;
  }
  for (const char* name : {"--parse-special", "--text-ends"})
    if (parser.given(name)) errors.push_back(str_cat(name, ": changes how text becomes ids; here are ids already"));
  complete(parser, request, errors);
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  if (!request.tokenizer.type.empty()) tokenizer = request.tokenizer.create(parser, errors);
  if (!errors.empty()) return refuse(errors);
  const auto prefixes = data::parse_blend(data::resolve_data_paths(request.spec).data_path, "--data-path").prefixes;
  if (names_values(prefixes)) return inspect_values(prefixes, request.json);
  data::BuildOptions options;
  options.seq_length = request.seq_length;
  options.seed = static_cast<std::uint64_t>(request.seed);
  options.tokenizer = tokenizer.get();
  options.num_threads = train::usable_cores();
  options.vocab_size = tokenizer != nullptr ? tokenizer->vocab_size() : 0;
  options.say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  const std::size_t split = split_index(request.split_name);
  data::DataReport report;
  const data::BuiltSplit built =
      data::build_one_split(request.spec, options, static_cast<data::SplitName>(split), request.num_samples, report);
  if (request.json)
    std::printf(
        "%s\n",
        json_of(request, built, report, tokenizer.get()).dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  else
    print_text(request, built, report, tokenizer.get());
  return 0;
}

}  // namespace megatron::cli
