// Names of the pipeline schedules, as options and reports write them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/parallel_spec.h"

namespace megatron::schedule {

/// "1f1b", "gpipe", "interleaved", "zb-h1", "zb-h2", "zb-v", "zb-auto"; "file" for a program read from one.
std::string_view name_of(spec::PipelineSchedule schedule);
/// The schedule of a name; nothing for other words, and for "file", which is no schedule to choose.
std::optional<spec::PipelineSchedule> find_schedule(std::string_view name);
/// All names that find_schedule knows.
std::vector<std::string> schedule_names();

/// Virtual stages of each rank that a schedule can have: at least, at most (0: any number).
struct ChunkRange {
  int least = 1, most = 1;
};
ChunkRange chunks_of(spec::PipelineSchedule schedule);

}  // namespace megatron::schedule
