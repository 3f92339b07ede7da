// megatron merge-datasets and split-dataset: .bin/.idx files joined and cut.
#include <cstdio>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/argument_parser.h"
#include "cli/command.h"
#include "data/merge.h"

namespace megatron::cli {
namespace {

constexpr const char* kMergeHelp =
    R"(usage: megatron merge-datasets --input DIR --output-prefix P [--multimodal]

Joins all .bin/.idx pairs of a folder, in the order of their names, to P.bin and P.idx.

  --input DIR           folder of the pairs
  --output-prefix P     name of the result without .bin or .idx
  --multimodal          keep the mode bytes, which every pair must have)";

constexpr const char* kSplitHelp =
    R"(usage: megatron split-dataset --input PREFIX --output-prefix P (--split S | --parts N)

Cuts PREFIX.bin/.idx between documents.

  --input PREFIX        the pair, without .bin or .idx
  --output-prefix P     beginning of the results' names
  --split S             shares such as 969,30,1: writes P_train, P_valid and P_test
  --parts N             writes P_00000, P_00001, ... with equal numbers of documents)";

void print(const data::WrittenDataset& written) {
  std::printf("wrote %s.bin and .idx: %lld documents, %lld sequences, %lld tokens\n", written.prefix.c_str(),
              static_cast<long long>(written.documents), static_cast<long long>(written.sequences),
              static_cast<long long>(written.tokens));
  if (!written.note.empty()) std::fprintf(stderr, "note: %s\n", written.note.c_str());
}

}  // namespace

int run_merge_datasets(Arguments args) {
  std::string input, output;
  bool multimodal = false, help = false;
  ArgumentParser parser;
  parser.text("--input", input);
  parser.text("--output-prefix", output);
  parser.flag("--multimodal", multimodal);
  parser.flag("--help", help);
  parser.flag("-h", help);
  std::vector<std::string> errors = parser.parse(args);
  if (help) return std::puts(kMergeHelp), 0;
  if (input.empty()) errors.emplace_back("--input: is required");
  if (output.empty()) errors.emplace_back("--output-prefix: is required");
  if (!errors.empty()) return refuse(errors);
  const std::vector<std::string> prefixes = data::datasets_in(input);
  for (const std::string& prefix : prefixes) std::printf("merging %s\n", prefix.c_str());
  print(data::merge_datasets(prefixes, output, multimodal));
  return 0;
}

int run_split_dataset(Arguments args) {
  std::string input, output, split;
  std::int64_t parts = 0;
  bool help = false;
  ArgumentParser parser;
  parser.text("--input", input);
  parser.text("--output-prefix", output);
  parser.text("--split", split);
  parser.integer("--parts", parts, 1);
  parser.flag("--help", help);
  parser.flag("-h", help);
  std::vector<std::string> errors = parser.parse(args);
  if (help) return std::puts(kSplitHelp), 0;
  if (input.empty()) errors.emplace_back("--input: is required");
  if (output.empty()) errors.emplace_back("--output-prefix: is required");
  if (parser.given("--split") == parser.given("--parts"))
    errors.emplace_back(parser.given("--split") ? "--split and --parts: only one of them"
                                                : "--split or --parts: one is required");
  if (!errors.empty()) return refuse(errors);
  const auto written =
      parts > 0 ? data::split_into_parts(input, output, parts) : data::split_dataset(input, output, split);
  for (const data::WrittenDataset& part : written) print(part);
  return 0;
}

}  // namespace megatron::cli
