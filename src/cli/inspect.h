// What `megatron inspect` can show of a run; all of it needs the description only, no tensor and no other rank.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "spec/run_spec.h"

namespace megatron::cli {

/// Each prints to standard output (a table, or with `json` one JSON document) and returns the exit status.
int inspect_ranks(const spec::RunSpec& run, bool json);
int inspect_model(const spec::RunSpec& run, bool json);
int inspect_lr(const spec::RunSpec& run, bool json);

/// Takes the command line itself: a schedule can be shown without a run.
int inspect_pipeline(Arguments args);
/// Takes the data options itself: no model is needed.
int inspect_data(Arguments args);
/// Of files that hold floats, which no run trains on: documents, values and lengths.
int inspect_values(const std::vector<std::string>& prefixes, bool json);

}  // namespace megatron::cli
