// Batches made ahead: while a step runs, a thread of its own prepares the micro-batches of the next one.
#pragma once

#include <functional>
#include <future>
#include <optional>
#include <vector>

#include "nn/pass.h"
#include "train/batches.h"

namespace megatron::train {

class BatchFeeder {
 public:
  /// `make` is called from another thread, one call at a time; what it uses must outlive the feeder. What it returns
  /// depends on its argument only, so preparing ahead changes no bit.
  using Make = std::function<std::vector<nn::MicroBatch>(const StepSamples&)>;
  explicit BatchFeeder(Make make) : make_(std::move(make)) {}
  ~BatchFeeder();
  BatchFeeder(const BatchFeeder&) = delete;
  BatchFeeder& operator=(const BatchFeeder&) = delete;

  /// The batches of `step`: prepared if it is what the last call named as next, else made now. Then starts with `next`,
  /// if there is one. Rethrows what `make` threw.
  std::vector<nn::MicroBatch> take(const StepSamples& step, const std::optional<StepSamples>& next);

 private:
  Make make_;
  std::optional<StepSamples> expected_;
  std::future<std::vector<nn::MicroBatch>> prepared_;
};

}  // namespace megatron::train
