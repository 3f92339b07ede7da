#include "schedule/schedule_name.h"

#include <array>

namespace megatron::schedule {
namespace {

using spec::PipelineSchedule;

struct Known {
  PipelineSchedule schedule;
  std::string_view name;
  ChunkRange chunks;
};

constexpr std::array<Known, 7> kKnown = {{{PipelineSchedule::gpipe, "gpipe", {1, 1}},
                                          {PipelineSchedule::one_f_one_b, "1f1b", {1, 1}},
                                          {PipelineSchedule::interleaved, "interleaved", {2, 0}},
                                          {PipelineSchedule::zb_h1, "zb-h1", {1, 1}},
                                          {PipelineSchedule::zb_h2, "zb-h2", {1, 1}},
                                          {PipelineSchedule::zb_v, "zb-v", {2, 2}},
                                          {PipelineSchedule::zb_auto, "zb-auto", {1, 2}}}};

}  // namespace

std::string_view name_of(PipelineSchedule schedule) {
  for (const Known& known : kKnown)
    if (known.schedule == schedule) return known.name;
  return "file";
}

std::optional<PipelineSchedule> find_schedule(std::string_view name) {
  for (const Known& known : kKnown)
    if (known.name == name) return known.schedule;
  return std::nullopt;
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const Known& known : kKnown) names.emplace_back(known.name);
  return names;
}

ChunkRange chunks_of(PipelineSchedule schedule) {
  for (const Known& known : kKnown)
    if (known.schedule == schedule) return known.chunks;
  return {1, 0};
}

}  // namespace megatron::schedule
