// The commands of the program: one function per command, defined in the file of its name.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/input.h"

namespace megatron::cli {

/// What stands behind the command's name on the command line.
using Arguments = std::span<const std::string>;

/// Each returns the exit status; `main` turns ConfigError into 2, CommError into 3 and any other exception into 1.
int run_train(Arguments args);
int run_validate(Arguments args);
int run_inspect(Arguments args);
int run_preprocess(Arguments args);
int run_merge_datasets(Arguments args);
int run_split_dataset(Arguments args);
int run_train_tokenizer(Arguments args);
int run_tokenize(Arguments args);
int run_generate(Arguments args);
int run_verify(Arguments args);
int run_bench(Arguments args);
int run_doctor(Arguments args);
int run_options(Arguments args);

/// What a command takes besides the options of a run, for its --help.
std::vector<config::CommandOption> generate_options();
std::vector<config::CommandOption> verify_options();
std::vector<config::CommandOption> json_option();  // of validate
std::vector<config::CommandOption> inspect_options();

/// Name and version of the program, as CMakeLists.txt gives it to the project.
const char* program_version();

}  // namespace megatron::cli
