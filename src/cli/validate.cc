// megatron validate: every number that follows from a configuration, and everything that is wrong with it.
#include <cstdio>

#include "cli/command.h"
#include "cli/run_parsing.h"
#include "cli/vocabulary.h"
#include "config/summary.h"
#include "schedule/batch_check.h"
#include "train/output_file.h"

namespace megatron::cli {

std::vector<config::CommandOption> json_option() { return {{"--json", false, "Print one JSON document."}}; }

int run_validate(Arguments args) {
  config::ParsedRun run = config::parse_run(args, {config::ParseMode::validate, json_option(), {}});
  if (run.accepted()) {
    try {
      read_vocabulary(run);
      if (run.spec.batch.num_micro_batches > 0) schedule::check_batches(run.spec);
    } catch (const ConfigError& error) {
      run.errors.push_back(error.what());
    }
  }
  check_faults(run);
  for (const std::string& problem : train::output_problems(run.spec)) run.errors.push_back(problem);
  const config::Summary summary = config::summarize(run);
  const std::string text =
      run.own.count("--json") > 0 ? config::summary_json(run, summary) + "\n" : config::summary_text(run, summary);
  std::fputs(text.c_str(), stdout);
  return run.accepted() ? 0 : 2;
}

}  // namespace megatron::cli
