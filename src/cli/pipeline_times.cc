// The options of pipeline_report.h.
#include <array>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "cli/pipeline_report.h"
#include "config/text_value.h"

namespace megatron::cli {
namespace {

using Own = std::map<std::string, std::string>;

std::string word_of(const Own& own, const char* name) {
  const auto it = own.find(name);
  return it == own.end() ? std::string() : it->second;
}

/// "F,I,W" or "F,I,W,comm".
spec::PipelineTimes parse_times(const std::string& text, const std::string& where, bool needs_message) {
  std::array<double, 4> times{};
  std::istringstream in(text);
  std::size_t count = 0;
  bool good = true;
  for (std::string field; std::getline(in, field, ','); ++count) {
    const std::size_t begin = field.find_first_not_of(" \t\r"), end = field.find_last_not_of(" \t\r");
    const auto number =
        config::parse_real(begin == std::string::npos ? std::string() : field.substr(begin, end - begin + 1));
    good = good && count < times.size() && number.has_value() && *number >= 0.0 && (count > 1 || *number > 0.0);
    if (good) times[count] = *number;
  }
  if (!good || count < (needs_message ? 4U : 3U))
    throw ConfigError(str_cat(where, ": must be ", needs_message ? "F,I,W,comm" : "F,I,W or F,I,W,comm",
                              ", numbers of which F and I are above 0, the others at least 0"));
  return {times[0], times[1], times[2], times[3]};
}

/// The lines of a file of times: one for all ranks, one per rank, or one per virtual stage.
std::vector<spec::PipelineTimes> read_times_file(const std::string& path, const spec::StagePlacement& placement) {
  std::ifstream in(path);
  const auto check = [&](bool good) {
    if (!good) throw ConfigError(str_cat("--times-file ", path, ": cannot be read"));
  };
  check(in.is_open());
  std::vector<spec::PipelineTimes> lines;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos || line[begin] == '#') continue;
    lines.push_back(parse_times(line, str_cat("--times-file ", path, ", line ", number), false));
  }
  check(!in.bad());  // a folder, which opens
  const std::int64_t count = std::ssize(lines);
  if (count != 1 && count != placement.num_ranks && count != placement.num_stages())
    throw ConfigError(str_cat("--times-file ", path, ": ", count, " lines of times; 1 or one per rank (",
                              placement.num_ranks, ") or per virtual stage (", placement.num_stages(),
                              ") are expected"));
  return lines;
}

/// What the options say: one entry for all ranks, one per rank or one per stage; nothing where none is given.
std::vector<spec::PipelineTimes> given_times(const Own& own, const spec::StagePlacement& placement) {
  const std::string times = word_of(own, "--times"), file = word_of(own, "--times-file");
  if (!times.empty() && !file.empty()) throw ConfigError("--times and --times-file exclude each other");
  if (!times.empty()) return {parse_times(times, "--times " + times, true)};
  if (!file.empty()) return read_times_file(file, placement);
  return {};
}

}  // namespace

std::vector<config::CommandOption> report_options() {
  return {{"--times", true, "F,I,W,comm: times of a rank's forward, input gradient, weight gradient, of a message."},
          {"--times-file", true, "The same from a file: one line F,I,W[,comm], or one per rank or virtual stage."},
          {"--stash-kept-after-input-grad", true,
           "What a stash weighs between I and W, from 0 to 1 (default: 1; of a described run, what its W needs)."},
          {"--with-communication", false, "Show sends and receives."},
          {"--svg", true, "Write the chart to this file as a picture."},
          {"--pipeline-schedule-out", true, "Write the program to this file as text."}};
}

double kept_of(const Own& own) {
  const std::string word = word_of(own, "--stash-kept-after-input-grad");
  if (word.empty()) return 1.0;
  const auto number = config::parse_real(word);
  if (!number || *number < 0.0 || *number > 1.0)
    throw ConfigError(str_cat("--stash-kept-after-input-grad ", word, ": must lie between 0 and 1"));
  return *number;
}

spec::PipelineTimes times_of_rank(const Own& own, const spec::StagePlacement& placement) {
  const std::vector<spec::PipelineTimes> given = given_times(own, placement);
  if (given.empty()) return {};
  // What a search starts from: the mean over the ranks.
  spec::PipelineTimes mean{0.0, 0.0, 0.0, 0.0};
  const bool per_stage = std::ssize(given) == placement.num_stages() && placement.num_chunks > 1;
  const double share = (per_stage ? placement.num_chunks : 1.0) / static_cast<double>(given.size());
  for (const spec::PipelineTimes& t : given) {
    mean.forward += t.forward * share;
    mean.input_grad += t.input_grad * share;
    mean.weight_grad += t.weight_grad * share;
    mean.message = std::max(mean.message, t.message);
  }
  return mean;
}

ReportOptions read_report_options(const Own& own, const spec::StagePlacement& placement) {
  ReportOptions options;
  options.kept_after_input_grad = kept_of(own);
  options.with_communication = own.count("--with-communication") > 0;
  options.json = own.count("--json") > 0;
  options.svg = word_of(own, "--svg");
  options.program_out = word_of(own, "--pipeline-schedule-out");
  const std::vector<spec::PipelineTimes> given = given_times(own, placement);
  options.times_given = !given.empty();
  options.times_differ = given.size() > 1;
  const double share = 1.0 / placement.num_chunks;
  const spec::PipelineTimes equal;
  for (int stage = 0; stage < placement.num_stages(); ++stage) {
    const bool per_stage = std::ssize(given) == placement.num_stages();
    const spec::PipelineTimes& t = given.empty()       ? equal
                                   : given.size() == 1 ? given.front()
                                   : per_stage         ? given[static_cast<std::size_t>(stage)]
                                                       : given[static_cast<std::size_t>(placement.rank_of(stage))];
    const double part = per_stage && given.size() > 1 ? 1.0 : share;
    options.durations.of_stage.push_back({t.forward * part, t.input_grad * part, t.weight_grad * part});
    options.durations.message = std::max(options.durations.message, t.message);
  }
  return options;
}

}  // namespace megatron::cli
