#include "kernels/embedding.h"

#include "kernels/checks.h"
#include "kernels/cpu/embedding.h"
#include "kernels/embedding_body.h"

namespace megatron::kernels {

namespace {
template <typename View>
View as_bits(View view) {
  view.dtype = DType::uint16;
  return view;
}
}  // namespace

void embedding_forward(Executor& exec, ConstTensorView table, const std::int64_t* ids, std::int64_t first_row,
                       TensorView y) {
  const KernelSpan span(exec, "embedding_forward");
  check_matrix(table, "table");
  check_matrix(y, "y");
  check_stream(y, "y", table, "table");
  check_view(y, {y.size(0), table.size(1)}, y.dtype, "y");
  check_pointer(exec, ids, y.size(0), "ids");
  count_bytes(exec, y.bytes() + y.numel() * dtype_size(table.dtype));
  if (exec.is_meta() || y.numel() == 0) return;
  if (is_double(y))
    embedding_forward_body<double>(exec, table, ids, first_row, y);
  else if (y.dtype != table.dtype)
    cpu::embedding_forward(exec, table, ids, first_row, y);
  else if (is_16_bit_float(y.dtype))  // a copy, whatever the bits mean
    embedding_forward_body<std::uint16_t>(exec, as_bits(table), ids, first_row, as_bits(y));
  else
    embedding_forward_body<float>(exec, table, ids, first_row, y);
}

void embedding_backward(Executor& exec, ConstTensorView dy, const std::int64_t* ids, std::int64_t first_row,
                        TensorView table_grad) {
  const KernelSpan span(exec, "embedding_backward");
  check_matrix(dy, "dy");
  check_matrix(table_grad, "table_grad");
  check_view(table_grad, {table_grad.size(0), dy.size(1)}, accumulation_dtype(dy.dtype), "table_grad");
  check_pointer(exec, ids, dy.size(0), "ids");
  // dy read, the touched rows of the table read and written
  count_bytes(exec, dy.bytes() + 2 * dy.numel() * dtype_size(table_grad.dtype));
  if (exec.is_meta() || dy.numel() == 0) return;
  if (is_double(dy))
    embedding_backward_body<double>(exec, dy, ids, first_row, table_grad);
  else if (is_16_bit_float(dy.dtype))
    cpu::embedding_backward(exec, dy, ids, first_row, table_grad);
  else
    embedding_backward_body<float>(exec, dy, ids, first_row, table_grad);
}

}  // namespace megatron::kernels
