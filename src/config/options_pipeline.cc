// Options of pipeline schedules.
#include <array>
#include <sstream>

#include "config/option_table.h"
#include "schedule/schedule_name.h"

namespace megatron::config {
namespace {

/// "F,I,W,communication".
Option times_option() {
  Option o;
  o.name = "--pipeline-times";
  o.dest = key_of(o.name);
  o.help =
      "Times of zb-auto: forward, input gradient, weight gradient of a rank, communication, as F,I,W,comm; unset: "
      "those of iterations 3 to 5.";
  o.set = [](Draft& d, const std::vector<std::string>& words) -> std::string {
    std::array<double, 4> times{};
    std::istringstream in(words.front());
    std::size_t count = 0;
    for (std::string field; std::getline(in, field, ','); ++count) {
      const auto number = parse_real(field);
      if (count == times.size() || !number || *number < 0 || (count < 2 && *number == 0))
        return "must be four numbers F,I,W,comm, of which F and I are above 0";
      times[count] = *number;
    }
    if (count != times.size()) return "must be four numbers F,I,W,comm, of which F and I are above 0";
    d.run.parallel.pipeline_times = spec::PipelineTimes{times[0], times[1], times[2], times[3]};
    return {};
  };
  o.show = [](const Draft& d) {
    const auto& t = d.run.parallel.pipeline_times;
    return t ? str_cat(t->forward, ",", t->input_grad, ",", t->weight_grad, ",", t->message) : std::string();
  };
  return o;
}

}  // namespace

std::vector<Option> pipeline_options() {
  std::vector<Option> rows;
  auto add = [&rows](Option&& o) { rows.push_back(std::move(o)); };
  add(text_choice(
          "--pipeline-schedule", [](Draft & d) -> auto& { return d.switches.pipeline_schedule; },
          schedule::schedule_names(),
          "Order of forward and backward passes over the stages; unset: 1f1b, with virtual stages interleaved.")
          .our_own());
  add(value(
          "--pipeline-schedule-file", [](Draft & d) -> auto& { return d.run.parallel.schedule_file; },
          "A program as text instead: one line per rank, passes as 2F0 (stage 2, forward, micro-batch 0).")
          .our_own());
  add(value(
          "--num-layers-per-virtual-pipeline-stage",
          [](Draft & d) -> auto& { return d.described.interleaving.layers_per_virtual_stage; },
          "Layers of a virtual stage.")
          .in("layers")
          .at_least(1));
  add(value(
          "--num-virtual-stages-per-pipeline-rank",
          [](Draft & d) -> auto& { return d.described.interleaving.virtual_stages_per_rank; },
          "Virtual stages of a rank.")
          .at_least(1)
          .at_most(65536));
  add(value(
          "--microbatch-group-size-per-virtual-pipeline-stage",
          [](Draft & d) -> auto& { return d.described.interleaving.micro_batch_group_size; },
          "Micro-batches that pass a virtual stage in a row; unset: the pipeline size.")
          .at_least(1));
  add(off_flag(
      "--no-overlap-p2p-communication", "overlap_p2p_comm",
      [](Draft & d) -> auto& { return d.described.interleaving.overlap_p2p; },
      "Accepted without effect: exchanges of stages always overlap. Refused with 2 ranks of virtual stages."));
  add(value(
      "--pipeline-model-parallel-layout", [](Draft & d) -> auto& { return d.run.parallel.pipeline_layout; },
      "What each virtual stage holds, in order and with bars between: E (embedding), t (layer), L (loss), repeats as "
      "in t*3; more stages than ranks are interleaved."));
  add(value(
          "--pipeline-memory-limit", [](Draft & d) -> auto& { return d.run.parallel.pipeline_memory_limit; },
          "Stashes that zb-auto (unset: 1) or a schedule file may hold, in multiples of 1F1B's activations.")
          .above(0)
          .our_own());
  add(value(
          "--pipeline-schedule-out", [](Draft & d) -> auto& { return d.run.parallel.schedule_out; },
          "Write the program of a step to this file, again when it changes.")
          .our_own());
  add(times_option().our_own());
  add(flag(
          "--pipeline-post-validation", [](Draft & d) -> auto& { return d.run.parallel.pipeline_post_validation; },
          "A stage updates its weights as soon as its own gradients are final, and takes the update back where the "
          "norm of all stages asks for another one; same results.")
          .our_own());
  for (Option& row : rows) row.topic = "Parallelism";
  return rows;
}

}  // namespace megatron::config
