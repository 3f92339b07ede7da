// What `megatron inspect pipeline` says of a program: table, chart, JSON, picture, text file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/input.h"
#include "schedule/simulate.h"

namespace megatron::cli {

/// Options of the report, whatever the program comes from.
struct ReportOptions {
  schedule::Durations durations;  // of stages, already with the share that a stage has of its rank
  bool times_given = false;
  bool times_differ = false;           // each rank or virtual stage has its own
  double kept_after_input_grad = 1.0;  // weight of a stash between I and W
  bool with_communication = false, json = false;
  std::string svg, program_out;  // files to write; empty: none
};

/// Names and help of these options; `times_of` reads them from a command's own options. Throws ConfigError.
std::vector<config::CommandOption> report_options();
ReportOptions read_report_options(const std::map<std::string, std::string>& own, const spec::StagePlacement& placement);

/// The four numbers of --times or of a --times-file with one line; all 1 and free messages where neither is given.
spec::PipelineTimes times_of_rank(const std::map<std::string, std::string>& own, const spec::StagePlacement& placement);
/// --stash-kept-after-input-grad, or 1 where it is not given.
double kept_of(const std::map<std::string, std::string>& own);

struct RankLayers {
  std::int64_t first_layer = 0, num_layers = 0;
};

/// Prints to standard output and writes the files. `passes` has no communication; `layers`: per rank, empty where no
/// model is known.
void print_pipeline_report(const std::string& schedule_name, const schedule::Program& passes,
                           const ReportOptions& options, const std::vector<RankLayers>& layers);

}  // namespace megatron::cli
