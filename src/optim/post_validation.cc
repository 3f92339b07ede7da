#include "optim/post_validation.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/elementwise.h"

namespace megatron::optim {
namespace {

constexpr std::int64_t kSumWords = ExactSum::kWords + 1;

}  // namespace

PostValidation::PostValidation(mesh::Rank& rank, Optimizer& optimizer) : rank_(rank), optimizer_(optimizer) {
  if (is_last_stage()) return;
  for (const Tensor& tensor : optimizer_.updated_tensors())
    saved_.push_back(rank_.exec.empty(tensor.shape(), tensor.dtype(), MemoryKind::optimizer));
}

void PostValidation::write(const Sums& sums, std::int64_t* words) {
  sums.squares.write(words);
  words[ExactSum::kWords] = sums.unhealthy;
}

PostValidation::Sums PostValidation::read(const std::int64_t* words) {
  return {ExactSum::read(words), words[ExactSum::kWords]};
}

PostValidation::Sums PostValidation::sum_over_stage(const Sums& own, const ExactSum& mask_sum) {
  const mesh::Mesh& mesh = rank_.mesh;
  Tensor words = rank_.exec.zeros(Shape{kSumWords + ExactSum::kWords}, DType::int64, MemoryKind::communication);
  auto* out = words.data<std::int64_t>();
  write(own, out);
  // Tensor-parallel ranks have the same micro-batches.
  if (mesh.tp.rank() == 0) mask_sum.write(out + kSumWords);
  for (const mesh::Group* group : {&mesh.tp, &mesh.dp}) {
    if (group->trivial()) continue;
    words = group->all_reduce(std::move(words), "sums of a stage");
    auto* sums = words.data<std::int64_t>();
    ExactSum::read(sums).write(sums);
    ExactSum::read(sums + kSumWords).write(sums + kSumWords);
  }
  const auto* in = std::as_const(words).data<std::int64_t>();
  input_.token_sum = ExactSum::read(in + kSumWords).value();
  return {ExactSum::read(in), in[ExactSum::kWords]};
}

PostValidation::Sums PostValidation::add_earlier_stages(Sums sums) {
  const mesh::Group& pp = rank_.mesh.pp;
  if (pp.rank() > 0) {
    Tensor words = rank_.exec.empty(Shape{kSumWords}, DType::int64, MemoryKind::communication);
    words = pp.communicator()->receive(std::move(words), pp.rank() - 1, "sums of earlier stages").wait();
    const Sums earlier = read(std::as_const(words).data<std::int64_t>());
    sums.squares.add(earlier.squares);
    sums.unhealthy += earlier.unhealthy;
  }
  if (!is_last_stage()) {
    Tensor words = rank_.exec.empty(Shape{kSumWords}, DType::int64, MemoryKind::communication);
    write(sums, words.data<std::int64_t>());
    sent_ = pp.communicator()->send(std::move(words), pp.rank() + 1, "sums of earlier stages");
  }
  return sums;
}

UpdateDecision PostValidation::decide(const Sums& sums) const {
  UpdateDecision decision = optimizer_.decide(input_, sums.squares);
  decision.skip = decision.skip || sums.unhealthy > 0;
  return decision;
}

void PostValidation::guess(const UpdateInput& input, const StageOutcome& outcome) {
  MEGATRON_CHECK(!guessed_, "the guess before was not settled");
  const mesh::Mesh& mesh = rank_.mesh;
  input_ = input;
  guessed_ = true;
  updated_ = redone_ = redone_by_any_ = false;
  // Without shards every data-parallel rank has all of the stage's gradients: one of them counts.
  Sums own;
  if (optimizer_.sharded() || mesh.dp.rank() == 0) own.squares = optimizer_.local_squares();
  own.unhealthy = outcome.healthy ? 0 : 1;
  // Of all stages, and beside it of the first one alone.
  Tensor both = rank_.exec.zeros(Shape{2 * kSumWords}, DType::int64, MemoryKind::communication);
  write(own, both.data<std::int64_t>());
  if (mesh.pp.rank() == 0) write(own, both.data<std::int64_t>() + kSumWords);
  const Sums known = add_earlier_stages(sum_over_stage(own, outcome.mask_sum));
  total_ = mesh.world.all_reduce_async(std::move(both), "sums of all stages");
  guess_ = decide(known);
  if (guess_.skip) return;
  if (!is_last_stage()) save();
  optimizer_.apply(input_, guess_.scale);
  updated_ = true;
}

bool PostValidation::differs(const UpdateDecision& guess) const {
  // The factor is compared, not the norm: without clipping the guess is right whatever the other stages add.
  return !guess.skip && (decision_.skip || decision_.scale != guess.scale);
}

bool PostValidation::guess_was_wrong() {
  MEGATRON_CHECK(guessed_, "there is no guess to validate");
  guessed_ = false;
  if (!is_last_stage()) sent_.wait();
  const Tensor both = total_.wait();
  const auto* words = both.data<std::int64_t>();
  const Sums total = read(words);
  unhealthy_ = total.unhealthy > 0;
  decision_ = decide(total);
  const UpdateDecision first = decide(read(words + kSumWords));
  redone_by_any_ = differs(first);
  MEGATRON_CHECK(updated_ || decision_.skip, "a stage left out an update that all stages do");
  redone_ = differs(guess_);
  MEGATRON_CHECK(redone_by_any_ || !redone_, "a guess was wrong, but not that of the first stage");
  return redone_;
}

UpdateResult PostValidation::finish() {
  if (redone_) restore();
  UpdateResult result;
  result.skipped = decision_.skip;
  if (!unhealthy_ && input_.token_sum > 0.0) result = optimizer_.result_of(decision_);
  if (redone_ && !decision_.skip) optimizer_.apply(input_, decision_.scale);
  return result;
}

void PostValidation::save() {
  const std::vector<Tensor> tensors = optimizer_.updated_tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) kernels::copy(rank_.exec, tensors[i], saved_[i]);
}

void PostValidation::restore() {
  std::vector<Tensor> tensors = optimizer_.updated_tensors();
  MEGATRON_CHECK_EQ(tensors.size(), saved_.size(), "tensors that an update writes");
  for (std::size_t i = 0; i < tensors.size(); ++i) kernels::copy(rank_.exec, saved_[i], tensors[i]);
  optimizer_.take_back_update();
}

}  // namespace megatron::optim
