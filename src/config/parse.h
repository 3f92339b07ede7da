// Text → RunSpec: preset, YAML file and command line, all mistakes at once.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/rules.h"
#include "spec/described_spec.h"
#include "spec/run_spec.h"

namespace megatron::config {

struct ParseOptions {
  ParseMode mode = ParseMode::train;
  std::vector<CommandOption> own;          // options of the command itself
  std::optional<int> launcher_world_size;  // processes that a launcher started
  std::vector<std::string> preset = {};    // options of a run that the command starts from; all other sources go before
};

/// A run as read and derived. Where it was not accepted, the RunSpec is filled in as far as it goes.
struct ParsedRun {
  spec::RunSpec spec;
  spec::DescribedSpec described;
  // One line each, sorted but for the notices. `refused`: errors in what Megatron-LM accepts and ignores.
  std::vector<std::string> notices, errors, refused, not_built;
  std::vector<std::string> rest;           // words that belong to no option
  std::map<std::string, std::string> own;  // the command's own options; a switch maps to "true"
  std::vector<std::string> given;          // canonical names of all options that were given
  bool countable = true;                   // false: too large a model for counts of 64 bits

  bool accepted() const { return errors.empty() && refused.empty() && not_built.empty(); }
};

/// `args`: what stands behind the command. `--config F` and `--preset NAME` name the other sources; the order is
/// preset < YAML < command line. Never throws for what a user wrote.
ParsedRun parse_run(std::span<const std::string> args, const ParseOptions& options);
inline ParsedRun parse_run(std::span<const std::string> args, ParseMode mode) {
  return parse_run(args, {mode, {}, {}});
}
/// Fills in what follows from a run whose model came from elsewhere (a checkpoint, another program's file): data
/// parallel size, padded vocabulary, layers of each stage, micro-batches. `parallel.world_size` 0 is unset. Returns
/// what is wrong, one line each.
std::vector<std::string> complete_run(spec::RunSpec& run, std::optional<int> launcher_world_size = {});
/// Throws ConfigError with all errors and everything refused or not built, one a line, unless the run was accepted and
/// no word is left over.
void require_accepted(const ParsedRun& run);

}  // namespace megatron::config
