#include "train/step_recorder.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <utility>

#include "base/units.h"
#include "kernels/bandwidth.h"
#include "kernels/peak.h"
#include "train/output_file.h"
#include "train/step_summary.h"
#include "train/trace_file.h"

namespace megatron::train {
namespace {

/// Events of a rank that a file takes at most, some 30 MB of memory; what comes later only counts in the profile.
constexpr std::int64_t kMaxEvents = std::int64_t{1} << 18;
constexpr std::int64_t kCopiedBytes = 128 * kMiB;  // larger than the caches of a core's share
constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;

/// Ranks with equal identity share a steady clock.
std::string machine_identity() {
  std::string identity;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> identity;
  return identity.empty() ? "unknown" : identity;
}

/// Brings the text of every rank to the first one, in rank order and in pieces. Collective over the world.
void bring_to_first_rank(RankParts& parts, const std::string& text,
                         const std::function<void(int rank, std::string_view piece)>& take) {
  std::vector<std::int64_t> sizes;
  for (const std::string& size : gather_texts(parts.rank(), std::to_string(text.size()), "recording.sizes"))
    sizes.push_back(std::stoll(size));
  const int mine = parts.mesh().rank;
  const auto for_each_piece = [](std::int64_t size, const auto& body) {
    for (std::int64_t at = 0; at < size; at += kPieceBytes) body(at, std::min(kPieceBytes, size - at));
  };
  if (mine != 0) {
    for_each_piece(std::ssize(text), [&](std::int64_t at, std::int64_t count) {
      Tensor piece = parts.exec().empty({count}, DType::uint8, MemoryKind::communication);
      std::memcpy(piece.view().pointer, text.data() + at, static_cast<std::size_t>(count));
      parts.world().send(std::move(piece), 0, "recording").wait();
    });
    return;
  }
  take(0, text);
  for (int rank = 1; rank < parts.mesh().world_size; ++rank)
    for_each_piece(sizes[static_cast<std::size_t>(rank)], [&](std::int64_t, std::int64_t count) {
      Tensor piece = parts.exec().empty({count}, DType::uint8, MemoryKind::communication);
      piece = parts.world().receive(std::move(piece), rank, "recording").wait();
      take(rank, {static_cast<const char*>(piece.view_const().pointer), static_cast<std::size_t>(count)});
    });
}

std::string rows_text(const Trace& trace) {
  std::string text;
  for (const SpanTotal& t : trace.totals())
    text += str_cat(static_cast<int>(t.kind), "\t", t.name, "\t", t.group, "\t", t.calls, "\t", t.own_ns, "\t",
                    t.work.flops, "\t", t.work.bytes, "\n");
  return text;
}

RankProfile rank_profile(const std::string& text) {
  RankProfile profile;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string kind;
    ProfileRow row;
    std::getline(words, kind, '\t');
    std::getline(words, row.name, '\t');
    std::getline(words, row.group, '\t');
    words >> row.calls >> row.own_ns >> row.work.flops >> row.work.bytes;
    row.kind = static_cast<SpanKind>(std::stoi(kind));
    profile.step_ns += row.own_ns;
    profile.rows.push_back(std::move(row));
  }
  return profile;
}

std::string rank_name(const mesh::Mesh& mesh) {
  const auto place = [](const char* axis, const mesh::Group& group) {
    return group.trivial() ? std::string() : str_cat(" ", axis, " ", group.rank());
  };
  return str_cat("rank ", mesh.rank, place("tp", mesh.tp), place("pp", mesh.pp), place("dp", mesh.dp));
}

}  // namespace

StepRecorder::StepRecorder(RankParts& parts, comm::RankContext& context)
    : parts_(parts), context_(context), log_(parts.run().log) {
  if (log_.trace.has_value() && parts.is_main()) check_writable("--trace", *log_.trace);
}

StepRecorder::Step::Step(StepRecorder& recorder, std::int64_t iteration) : recorder_(nullptr) {
  if (!recorder.asked() || recorder.finished_ || iteration <= recorder.log_.profile_step_start ||
      iteration > recorder.log_.profile_step_end)
    return;
  if (recorder.trace_ == nullptr) {
    recorder.first_iteration_ = iteration;
    recorder.start();
  }
  recorder_ = &recorder;
  ++recorder.num_steps_;
  recorder.last_iteration_ = iteration;
  recorder.parts_.exec().set_trace(recorder.trace_.get());
  recorder.context_.set_trace(recorder.trace_.get());
  recorder.trace_->open(SpanKind::step, "step", {}, std::to_string(iteration));
}

StepRecorder::Step::~Step() {
  if (recorder_ == nullptr) return;
  recorder_->trace_->close();
  recorder_->parts_.exec().set_trace(nullptr);
  recorder_->context_.set_trace(nullptr);
}

void StepRecorder::start() {
  trace_ = std::make_unique<Trace>(log_.trace.has_value() ? kMaxEvents : 0);
  // Clocks of different machines have nothing in common but the moment in which all ranks leave the barrier.
  parts_.world().barrier("recording.start");
  const std::int64_t now = trace_clock_ns();
  const std::string identity = machine_identity();
  const auto texts = gather_texts(parts_.rank(), str_cat(now, " ", identity), "recording.clocks");
  std::istringstream first(texts.front());
  std::int64_t first_now = 0;
  std::string first_identity;
  first >> first_now >> first_identity;
  shift_ns_ = first_identity == identity ? -first_now : -now;
}

void StepRecorder::write_trace(std::vector<std::string>& lines) {
  std::optional<TraceFile> file;
  if (parts_.is_main()) {
    file.emplace(*log_.trace);
    file->begin();
  }
  int writing = -1;
  bring_to_first_rank(parts_, trace_events_json(*trace_, parts_.mesh().rank, rank_name(parts_.mesh()), shift_ns_),
                      [&](int rank, std::string_view piece) {
                        if (std::exchange(writing, rank) != rank) file->begin_rank();
                        file->add(piece);
                      });
  if (file.has_value()) file->end();
  std::int64_t events = 0, left_out = 0;
  for (const std::string& text :
       gather_texts(parts_.rank(), str_cat(trace_->events().size(), " ", trace_->num_left_out()), "recording.events")) {
    std::int64_t mine = 0, mine_left_out = 0;
    std::istringstream(text) >> mine >> mine_left_out;
    events += mine;
    left_out += mine_left_out;
  }
  lines.push_back(str_cat("trace of ", num_steps_ == 1 ? "iteration " : "iterations ", first_iteration_,
                          num_steps_ == 1 ? "" : str_cat(" to ", last_iteration_), ": ", events, " events of ",
                          parts_.mesh().world_size, parts_.mesh().world_size == 1 ? " rank in " : " ranks in ",
                          *log_.trace));
  if (left_out > 0)
    lines.push_back(str_cat("the trace is not whole: ", left_out, " later events found no room (at most ", kMaxEvents,
                            " of a rank); record fewer steps or micro-batches"));
}

StepProfile StepRecorder::finish(std::vector<std::string>& lines) {
  finished_ = true;
  context_.note_progress("recording", last_iteration_);  // the writing of it is no part of an instruction
  StepProfile profile;
  profile.first_iteration = first_iteration_;
  profile.num_steps = num_steps_;
  std::vector<std::string> texts(static_cast<std::size_t>(parts_.mesh().world_size));
  bring_to_first_rank(parts_, rows_text(*trace_),
                      [&](int rank, std::string_view piece) { texts[static_cast<std::size_t>(rank)] += piece; });
  if (parts_.is_main())
    for (const std::string& text : texts) profile.ranks.push_back(rank_profile(text));
  if (log_.trace.has_value()) write_trace(lines);
  trace_ = std::make_unique<Trace>(0);  // its memory is not needed any more
  return profile;
}

MachineLimits measure_limits(RankParts& parts, double matmul_seconds) {
  Tensor rates = parts.exec().empty({2}, DType::float64, MemoryKind::communication);
  parts.world().barrier("limits.matmul");
  rates.data<double>()[0] =
      matmul_seconds > 0 ? kernels::matmul_peak_within(parts.exec(), matmul_seconds, parts.run().numerics.params_dtype)
                         : 0.0;
  parts.world().barrier("limits.copy");
  rates.data<double>()[1] = kernels::copy_bandwidth(parts.exec(), kCopiedBytes, 5);
  if (!parts.mesh().world.trivial()) rates = parts.mesh().world.all_reduce(std::move(rates), "limits.rates");
  const double* sums = std::as_const(rates).data<double>();
  const auto ranks = static_cast<double>(parts.mesh().world_size);
  return {sums[0] / ranks, sums[1] / ranks};
}

}  // namespace megatron::train
