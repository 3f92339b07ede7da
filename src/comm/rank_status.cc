#include "comm/rank_status.h"

namespace megatron::comm {

std::string operation_text(const std::string& group, std::int64_t sequence, OperationKind kind,
                           const std::string& label) {
  return str_cat(operation_name(kind), " #", sequence, " \"", label, "\" in ", group);
}

std::string RankRecord::where() const {
  std::string text = operation.empty() ? "before its first operation" : operation;
  const bool inside = phase == RankPhase::waiting || phase == RankPhase::posting;
  if (!inside && !operation.empty()) text = "after " + text;
  if (!instruction.empty()) text = str_cat(instruction, " of iteration ", iteration, ", ", text);
  return text;
}

void RankStatus::note_progress(std::string_view what, std::int64_t iteration) {
  const std::lock_guard lock(mutex_);
  instruction_.assign(what);
  iteration_ = iteration;
  phase_ = RankPhase::running;
  since_ = Clock::now();
  ++serial_;
}

std::int64_t RankStatus::iteration() const {
  const std::lock_guard lock(mutex_);
  return iteration_;
}

void RankStatus::enter(RankPhase phase, const std::string& group, std::int64_t sequence, OperationKind kind,
                       const std::string& label) {
  const std::lock_guard lock(mutex_);
  group_ = group;
  sequence_ = sequence;
  kind_ = kind;
  label_ = label;
  phase_ = phase;
  since_ = Clock::now();
  ++serial_;
}

void RankStatus::running() {
  const std::lock_guard lock(mutex_);
  phase_ = RankPhase::running;
  since_ = Clock::now();
  ++serial_;
}

void RankStatus::end(RankPhase phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  since_ = Clock::now();
  ++serial_;
}

RankRecord RankStatus::record() const {
  const std::lock_guard lock(mutex_);
  RankRecord record;
  record.instruction = instruction_;
  record.iteration = iteration_;
  if (sequence_ >= 0) record.operation = operation_text(group_, sequence_, kind_, label_);
  record.phase = phase_;
  record.serial = serial_;
  record.seconds = seconds_since(since_);
  return record;
}

}  // namespace megatron::comm
