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

void keep(LinearTask& task) {
  task.x.set_kind(MemoryKind::stash);
  task.dy.set_kind(MemoryKind::stash);
}

void keep(EmbeddingTask& task) { task.dy.set_kind(MemoryKind::stash); }

void keep(VectorTask& task) { task.grad.set_kind(MemoryKind::stash); }

void run(kernels::Executor& exec, const EmbeddingTask& task) {
  if (!task.table->trainable) return;
  if (std::exchange(task.table->main_grad_is_stale, false)) kernels::fill_zero(exec, task.table->main_grad);
  kernels::embedding_backward(exec, task.dy, task.ids, task.first_row, task.table->main_grad);
}

void run(kernels::Executor& exec, const VectorTask& task) {
  if (task.vector->trainable) kernels::add_in_place(exec, task.grad, task.vector->main_grad);
}

}  // namespace

Tensor new_gradient(kernels::Executor& exec, const Parameter& vector) {
  return exec.zeros(vector.value.shape(), accumulation_dtype(vector.value.dtype()));
}

void WeightGradQueue::push(WeightGradTask task) {
  if (!deferred_) return execute(task);
  // What waits for W is kept like a stash.
  std::visit([](auto& concrete) { keep(concrete); }, task);
  tasks_.push_back(std::move(task));
}

void WeightGradQueue::drain() {
  for (WeightGradTask& task : tasks_) execute(task);
  tasks_.clear();
}

void WeightGradQueue::prepare(Parameter* parameter) {
  if (sink_ != nullptr && parameter != nullptr && parameter->trainable) sink_->prepare(*parameter);
}

void WeightGradQueue::report(Parameter* parameter) {
  if (sink_ != nullptr && parameter != nullptr && parameter->trainable) sink_->grad_ready(*parameter);
}

void WeightGradQueue::execute(WeightGradTask& task) {
  // What a task kept is not needed any more when it has run: free it before the sink may start to communicate.
  if (auto* linear = std::get_if<LinearTask>(&task)) {
    prepare(linear->bias);
    prepare(linear->weight);
    run(exec_, *linear);
    linear->x.reset();
    linear->dy.reset();
    if (!linear->last) return;
    report(linear->bias);
    report(linear->weight);
  } else if (auto* embedding = std::get_if<EmbeddingTask>(&task)) {
    prepare(embedding->table);
    run(exec_, *embedding);
    embedding->dy.reset();
    report(embedding->table);
  } else if (auto* vector = std::get_if<VectorTask>(&task)) {
    prepare(vector->vector);
    run(exec_, *vector);
    vector->grad.reset();
    report(vector->vector);
  }
}

}  // namespace megatron::nn
