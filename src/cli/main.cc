// The program: finds the command, runs it, turns exceptions into exit statuses.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/exit_status.h"
#include "cli/command.h"
#include "config/nearest.h"
#include "config/option_docs.h"

namespace {

using megatron::cli::Arguments;

/// What --help lists behind a command's own options.
enum class Help : std::uint8_t { itself, nothing, run_table, see_options };  // itself: the command prints its help

struct Command {
  const char* name;
  int (*run)(Arguments);
  const char* help;
  Help more = Help::nothing;
  std::vector<megatron::config::CommandOption> (*own_options)() = nullptr;
};

constexpr Command kCommands[] = {
    {"train", megatron::cli::run_train, "train or continue a model", Help::run_table},
    {"validate", megatron::cli::run_validate, "check a configuration and print every derived number", Help::run_table,
     megatron::cli::json_option},
    {"inspect", megatron::cli::run_inspect, "ranks | model | pipeline | lr | data: look inside, no run needed",
     Help::run_table, megatron::cli::inspect_options},
    {"preprocess", megatron::cli::run_preprocess, "text or JSON lines to .bin/.idx", Help::itself},
    {"merge-datasets", megatron::cli::run_merge_datasets, "join .bin/.idx files", Help::itself},
    {"split-dataset", megatron::cli::run_split_dataset, "cut a .bin/.idx file between documents", Help::itself},
    {"train-tokenizer", megatron::cli::run_train_tokenizer, "learn a BPE vocabulary from text", Help::itself},
    {"tokenize", megatron::cli::run_tokenize, "text to token ids and back", Help::itself},
    {"generate", megatron::cli::run_generate, "sample text from a checkpoint", Help::see_options,
     megatron::cli::generate_options},
    {"verify", megatron::cli::run_verify, "compare with the numbers of another program", Help::see_options,
     megatron::cli::verify_options},
    {"bench", megatron::cli::run_bench, "measure speed", Help::itself},
    {"doctor", megatron::cli::run_doctor, "what this build has and this machine offers"},
    {"options", megatron::cli::run_options, "list all options [--markdown]"},
};

void print_help() {
  std::puts("usage: megatron COMMAND [--config FILE] [--any-megatron-option VALUE ...]\n\ncommands:");
  for (const Command& command : kCommands) std::printf("  %-15s %s\n", command.name, command.help);
  std::puts("\nmegatron --version prints the version; megatron options lists the options.");
}

int print_command_help(const Command& command) {
  std::printf("megatron %s: %s\n", command.name, command.help);
  if (command.own_options != nullptr) std::puts("");
  if (command.own_options != nullptr)
    for (const megatron::config::CommandOption& option : command.own_options())
      std::printf("  %s%s\n      %s\n", option.name.c_str(), option.takes_value ? " VALUE" : "", option.help.c_str());
  if (command.more == Help::run_table) std::printf("\n%s", megatron::config::option_table_text().c_str());
  if (command.more == Help::see_options)
    std::puts("\nOptions of a run, those of the layout among them, are in `megatron options`.");
  return 0;
}

int unknown_command(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  const std::string near = megatron::config::nearest_name(name, names);
  std::fprintf(stderr, "megatron: unknown command %s%s%s; megatron --help lists them\n", name.c_str(),
               near.empty() ? "" : "; nearest: ", near.c_str());
  return 2;
}

int fail(const char* text, int status) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", text);
  return status;
}

int run(const Command& command, const std::vector<std::string>& args) {
  const auto asks_for_help = [](const std::string& arg) { return arg == "--help" || arg == "-h"; };
  if (command.more != Help::itself && std::any_of(args.begin(), args.end(), asks_for_help))
    return print_command_help(command);
  try {
    return command.run(args);
  } catch (const std::bad_alloc&) {
    return fail("out of memory: this machine cannot hold what the options ask for", 1);
  } catch (const std::exception& error) {
    return fail(error.what(), megatron::exit_status(error));
  }
}

/// Success only if everything that was printed has arrived: a full disk must not look like a finished command.
int flushed(int status) {
  if ((std::fflush(stdout) == 0 && std::ferror(stdout) == 0) || status != 0) return status;
  std::fprintf(stderr, "megatron: standard output cannot be written: %s\n", std::strerror(errno));
  return 1;
}

int dispatch(int argc, char** argv) {
  const std::vector<std::string> args(argv + (argc > 1 ? 2 : 1), argv + argc);
  const std::string name = argc > 1 ? argv[1] : "--help";
  if (name == "--help" || name == "-h" || name == "help") return print_help(), argc > 1 ? 0 : 2;
  if (name == "--version") return std::puts(megatron::cli::program_version()), 0;
  for (const Command& command : kCommands)
    if (name == command.name) return run(command, args);
  return unknown_command(name);
}

}  // namespace

int main(int argc, char** argv) {
  // A file that may not grow further is an error of the write, which names it, and no silent death.
  std::signal(SIGXFSZ, SIG_IGN);
  return flushed(dispatch(argc, argv));
}
