#include "kernels/embedding.h"

#include "kernels/checks.h"
#include "kernels/embedding_body.h"

namespace megatron::kernels {

void embedding_forward(Executor& exec, ConstTensorView table, const std::int64_t* ids, std::int64_t first_row,
                       TensorView y) {
  const KernelSpan span(exec, "embedding_forward");
  check_matrix(table, "table");
  check_matrix(y, "y");
  check_view(y, {y.size(0), table.size(1)}, table.dtype, "y");
  check_pointer(exec, ids, y.size(0), "ids");
  count_operands(exec, y, y);
  if (exec.is_meta() || y.numel() == 0) return;
  if (is_double(y))
    embedding_forward_body<double>(exec, table, ids, first_row, y);
  else
    embedding_forward_body<float>(exec, table, ids, first_row, y);
}

void embedding_backward(Executor& exec, ConstTensorView dy, const std::int64_t* ids, std::int64_t first_row,
                        TensorView table_grad) {
  const KernelSpan span(exec, "embedding_backward");
  check_matrix(dy, "dy");
  check_matrix(table_grad, "table_grad");
  check_view(table_grad, {table_grad.size(0), dy.size(1)}, dy.dtype, "table_grad");
  check_pointer(exec, ids, dy.size(0), "ids");
  count_operands(exec, dy, dy, dy);  // dy read, the touched rows of the table read and written
  if (exec.is_meta() || dy.numel() == 0) return;
  if (is_double(dy))
    embedding_backward_body<double>(exec, dy, ids, first_row, table_grad);
  else
    embedding_backward_body<float>(exec, dy, ids, first_row, table_grad);
}

}  // namespace megatron::kernels
