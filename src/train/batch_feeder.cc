#include "train/batch_feeder.h"

#include <utility>

namespace megatron::train {

BatchFeeder::~BatchFeeder() {
  // What was prepared for a step that never came, or its error, is of no interest.
  if (prepared_.valid()) prepared_.wait();
}

std::vector<nn::MicroBatch> BatchFeeder::take(const StepSamples& step, const std::optional<StepSamples>& next) {
  std::vector<nn::MicroBatch> batches;
  if (prepared_.valid()) prepared_.wait();
  if (std::exchange(expected_, std::nullopt) == step) {
    batches = prepared_.get();
  } else {
    prepared_ = {};
    batches = make_(step);
  }
  if (!next.has_value()) return batches;
  expected_ = next;
  prepared_ = std::async(std::launch::async, [this, ahead = *next] { return make_(ahead); });
  return batches;
}

}  // namespace megatron::train
