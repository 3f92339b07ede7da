// Weight-gradient work as data: a backward pass (the head: its forward pass of training) queues it, and it runs at once
// (while the reduction of dx is under way) or later (instruction W). Whatever is added to a main_grad goes through
// here.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "kernels/executor.h"
#include "nn/hooks.h"
#include "nn/parameter.h"

namespace megatron::nn {

/// weight.main_grad[O,I] += dy[T,O]ᵀ·x[T,I]; bias (may be null).main_grad[O] += column sums of dy.
/// `last`: no other task of this micro-batch follows for these parameters.
struct LinearTask {
  Parameter* weight;
  Parameter* bias;
  Tensor x, dy;
  bool last = true;
};

/// table.main_grad[id − first_row] += dy[t]; ids: T int64 alive until the task has run (they belong to the
/// micro-batch).
struct EmbeddingTask {
  Parameter* table;
  const std::int64_t* ids;
  std::int64_t first_row;
  Tensor dy;
};

/// vector.main_grad += grad: what a layer has summed over its tokens itself (norm weights, biases).
struct VectorTask {
  Parameter* vector;
  Tensor grad;
};

/// Zeros of the shape of `vector` and the dtype of its main_grad, for a VectorTask.
Tensor new_gradient(kernels::Executor& exec, const Parameter& vector);

using WeightGradTask = std::variant<LinearTask, EmbeddingTask, VectorTask>;

class WeightGradQueue {
 public:
  /// `sink` may be null (gradients without data parallelism bookkeeping: tests).
  WeightGradQueue(kernels::Executor& exec, GradSink* sink) : exec_(exec), sink_(sink) {}

  /// Deferred: tasks wait for drain(); else push() runs the task before it returns.
  void set_deferred(bool deferred) { deferred_ = deferred; }
  void push(WeightGradTask task);
  /// Runs all waiting tasks in the order of their push(), each followed by its reports to the sink; then it is empty.
  void drain();
  bool empty() const { return tasks_.empty(); }

 private:
  void execute(WeightGradTask& task);
  void prepare(Parameter* parameter);  // null: nothing
  void report(Parameter* parameter);

  kernels::Executor& exec_;
  GradSink* sink_;
  bool deferred_ = false;
  std::vector<WeightGradTask> tasks_;
};

}  // namespace megatron::nn
