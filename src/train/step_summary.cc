#include "train/step_summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstring>

#include "spec/run_memory.h"

namespace megatron::train {
namespace {

constexpr int kScalars = 10;
constexpr int kWords = 2 * ExactSum::kWords + kScalars;
static_assert(kWords == spec::kStepSummaryWords, "see spec/run_memory.h");
constexpr std::int64_t kTextWords = 60;

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
double seconds(std::int64_t ns) { return 1e-9 * static_cast<double>(ns); }

}  // namespace

double StepSummary::loss() const {
  const double tokens = mask_sum.value();
  return tokens == 0.0 ? 0.0 : loss_sum.value() / tokens;
}

int StepSummary::stop_signal() const {
  if (sigint > 0) return SIGINT;
  if (sigterm > 0) return SIGTERM;
  return sigusr1 > 0 ? SIGUSR1 : 0;
}

StepSummary local_summary(const mesh::Mesh& mesh, const pipeline::StepOutput& output, int signal) {
  StepSummary summary;
  if (mesh.holds_last_stage() && mesh.tp.rank() == 0) {
    summary.loss_sum = output.loss_sum;
    summary.mask_sum = output.mask_sum;
    summary.trained_tokens = output.trained_tokens;
  }
  summary.bad_ranks = output.first_bad_tensor.empty() ? 0 : 1;
  summary.sigterm = signal == SIGTERM;
  summary.sigint = signal == SIGINT;
  summary.sigusr1 = signal == SIGUSR1;
  summary.forward_seconds = output.times.forward_seconds;
  summary.backward_seconds = output.times.backward_seconds;
  summary.exposed_seconds = output.times.exposed_communication_seconds;
  return summary;
}

PendingSummary::PendingSummary(mesh::Rank& rank, const StepSummary& local, std::string_view label)
    : local_(local), alone_(rank.mesh.world_size == 1) {
  if (alone_) return;
  Tensor words = rank.exec.empty({kWords}, DType::int64, MemoryKind::communication);
  auto* out = words.data<std::int64_t>();
  out = std::copy(local.loss_sum.words().begin(), local.loss_sum.words().end(), out);
  out = std::copy(local.mask_sum.words().begin(), local.mask_sum.words().end(), out);
  const std::array<std::int64_t, kScalars> scalars = {local.trained_tokens,
                                                      local.bad_ranks,
                                                      local.sigterm,
                                                      local.sigint,
                                                      local.sigusr1,
                                                      local.out_of_time,
                                                      nanoseconds(local.forward_seconds),
                                                      nanoseconds(local.backward_seconds),
                                                      nanoseconds(local.exposed_seconds),
                                                      nanoseconds(local.data_seconds)};
  std::copy(scalars.begin(), scalars.end(), out);

  words_ = rank.mesh.world.all_reduce_async(std::move(words), label);
}

StepSummary PendingSummary::wait() {
  if (alone_) return local_;
  const Tensor summed = words_.wait();
  const auto* in = summed.data<std::int64_t>();
  StepSummary total;
  total.loss_sum = ExactSum::read(in);
  total.mask_sum = ExactSum::read(in + ExactSum::kWords);
  in += 2 * ExactSum::kWords;
  total.trained_tokens = in[0];
  total.bad_ranks = in[1];
  total.sigterm = in[2];
  total.sigint = in[3];
  total.sigusr1 = in[4];
  total.out_of_time = in[5];
  total.forward_seconds = seconds(in[6]);
  total.backward_seconds = seconds(in[7]);
  total.exposed_seconds = seconds(in[8]);
  total.data_seconds = seconds(in[9]);
  return total;
}

StepSummary reduce_summary(mesh::Rank& rank, const StepSummary& local, std::string_view label) {
  return PendingSummary(rank, local, label).wait();
}

std::vector<std::string> gather_texts(mesh::Rank& rank, const std::string& text, std::string_view label) {
  const int size = rank.mesh.world_size;
  if (size == 1) return {text};
  Tensor mine = rank.exec.zeros({kTextWords}, DType::int64, MemoryKind::communication);
  std::memcpy(mine.data<std::int64_t>(), text.data(), std::min<std::size_t>(text.size(), kTextWords * 8));
  Tensor all = rank.exec.empty({kTextWords * size}, DType::int64, MemoryKind::communication);
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(size), kTextWords);
  all = rank.mesh.world.communicator()->all_gather(std::move(mine), rows, std::move(all), label).wait();
  std::vector<std::string> texts;
  for (int r = 0; r < size; ++r) {
    const auto* begin = reinterpret_cast<const char*>(all.data<std::int64_t>() + r * kTextWords);
    texts.emplace_back(begin, strnlen(begin, kTextWords * 8));
  }
  return texts;
}

}  // namespace megatron::train
