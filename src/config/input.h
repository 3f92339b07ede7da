// What was written where: the options of a run as found in preset, YAML file and command line, before they mean
// anything.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/foreign_options.h"
#include "config/option_table.h"

namespace megatron::config {

/// One occurrence of an option; a later one wins.
struct Occurrence {
  std::string name;                // canonical name of the table, or the name as written where unknown
  std::string written;             // as it stands in the source: "--seq-len", "add_bias_linear"
  std::vector<std::string> words;  // values; empty for a switch on the command line
  std::string origin;              // "command line", "run.yaml:3", "preset gpt2-124m"
};

/// Options of one command that no other has (`--json`, `--steps`): handed back unread.
struct CommandOption {
  std::string name;  // "--json"
  bool takes_value = false;
  std::string help;
};

struct Input {
  std::vector<Occurrence> known, foreign;
  std::vector<Occurrence> unknown;         // names that neither table has
  std::map<std::string, std::string> own;  // command options; a switch maps to "true"
  std::vector<std::string> rest;           // words that belong to no option
  std::vector<std::string> problems;       // what could not even be read
};

struct Tables {
  OptionTable options;
  ForeignOptions foreign;
};

/// Reads argparse forms: `--name value`, `--name=value`, lists up to the next option, negative numbers as values.
void read_command_line(const Tables& tables, const std::vector<std::string>& args,
                       const std::vector<CommandOption>& own, const std::string& origin, Input& input);
/// Reads a flat YAML file; keys are option spellings or destination fields with underscores. Nested maps, duplicate
/// keys and two keys for one option are problems with file and line.
void read_yaml_file(const Tables& tables, const std::string& path, Input& input);
/// The same from text; `name` stands for the file in messages.
void read_yaml_text(const Tables& tables, const std::string& text, const std::string& name, Input& input);

}  // namespace megatron::config
