#include "nn/weight_grad.h"

#include <utility>

#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"

namespace megatron::nn {
namespace {

void run(kernels::Executor& exec, const LinearTask& task) {
  if (task.weight->trainable)
    kernels::matmul(exec, task.dy, kernels::Transpose::yes, task.x, kernels::Transpose::no, task.weight->main_grad,
                    /*accumulate=*/!std::exchange(task.weight->main_grad_is_stale, false));
  if (task.bias != nullptr && task.bias->trainable) kernels::bias_grad(exec, task.dy, task.bias->main_grad);
}

void run(kernels::Executor& exec, const EmbeddingTask& task) {
  if (!task.table->trainable) return;
  if (std::exchange(task.table->main_grad_is_stale, false)) kernels::fill_zero(exec, task.table->main_grad);
  kernels::embedding_backward(exec, task.dy, task.ids, task.first_row, task.table->main_grad);
}

}  // namespace

void WeightGradQueue::push(WeightGradTask task) {
  if (deferred_)
    tasks_.push_back(std::move(task));
  else
    execute(task);
}

void WeightGradQueue::drain() {
  for (WeightGradTask& task : tasks_) execute(task);
  tasks_.clear();
}

void WeightGradQueue::grad_ready(Parameter& parameter) {
  if (sink_ != nullptr && parameter.trainable) sink_->grad_ready(parameter);
}

void WeightGradQueue::execute(WeightGradTask& task) {
  std::visit([this](auto& concrete) { run(exec_, concrete); }, task);
  if (auto* linear = std::get_if<LinearTask>(&task)) {
    // What the task kept is not needed any more: free it before the sink may start to communicate.
    linear->x.reset();
    linear->dy.reset();
    if (!linear->last) return;
    if (linear->bias != nullptr) grad_ready(*linear->bias);
    grad_ready(*linear->weight);
  } else if (auto* embedding = std::get_if<EmbeddingTask>(&task)) {
    embedding->dy.reset();
    grad_ready(*embedding->table);
  }
}

}  // namespace megatron::nn
