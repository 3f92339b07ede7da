// megatron inspect: looks inside a run without starting it.
#include "cli/inspect.h"

#include "base/check.h"
#include "cli/command.h"
#include "config/nearest.h"
#include "config/parse.h"

namespace megatron::cli {
namespace {

struct Subject {
  const char* name;
  int (*show)(const spec::RunSpec&, bool);
  config::ParseMode needs = config::ParseMode::validate;
};

constexpr Subject kSubjects[] = {
    {"ranks", inspect_ranks, config::ParseMode::layout},
    {"model", inspect_model},
    {"lr", inspect_lr},
};

}  // namespace

int run_inspect(Arguments args) {
  if (args.empty()) throw ConfigError("inspect: what? ranks, model, pipeline, lr or data");
  if (args.front() == "pipeline") return inspect_pipeline(args.subspan(1));
  if (args.front() == "data") return inspect_data(args.subspan(1));
  for (const Subject& subject : kSubjects) {
    if (args.front() != subject.name) continue;
    const config::ParsedRun run = config::parse_run(args.subspan(1), {subject.needs, json_option(), {}});
    config::require_accepted(run);
    return subject.show(run.spec, run.own.count("--json") > 0);
  }
  const std::string near = config::nearest_name(args.front(), {"ranks", "model", "pipeline", "lr", "data"});
  throw ConfigError(str_cat("inspect ", args.front(), ": known are ranks, model, pipeline, lr, data",
                            near.empty() ? "" : "; nearest: " + near));
}

}  // namespace megatron::cli
