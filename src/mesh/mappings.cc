#include "mesh/mappings.h"

#include <utility>
#include <vector>

#include "kernels/elementwise.h"

namespace megatron::mesh {
namespace {

/// Rows of one rank when `rows` are cut into equal parts.
std::int64_t equal_part(std::int64_t rows, const Group& group, std::string_view what) {
  MEGATRON_CHECK_EQ(rows % group.size(), 0, what, " ", rows, " cut over ", group.size(), " ranks");
  return rows / group.size();
}

std::vector<std::int64_t> equal_rows(const Group& group, std::int64_t rows) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(group.size()), rows);
}

/// [n·T, H/n] (the column blocks of all ranks, one below the other) ↔ [T, H].
void join_columns(kernels::Executor& exec, const Tensor& blocks, int n, Tensor& joined) {
  const std::int64_t rows = joined.size(0), width = blocks.size(1);
  for (int r = 0; r < n; ++r)
    kernels::copy(exec, blocks.slice(0, r * rows, (r + 1) * rows), joined.slice(1, r * width, (r + 1) * width));
}

void split_columns(kernels::Executor& exec, const Tensor& joined, int n, Tensor& blocks) {
  const std::int64_t rows = joined.size(0), width = blocks.size(1);
  for (int r = 0; r < n; ++r)
    kernels::copy(exec, joined.slice(1, r * width, (r + 1) * width), blocks.slice(0, r * rows, (r + 1) * rows));
}

}  // namespace

comm::Pending<Tensor> gather_along_tokens(kernels::Executor& exec, const Group& group, Tensor x,
                                          std::string_view label) {
  if (group.trivial()) return comm::Pending<Tensor>(std::move(x));
  const std::int64_t rows = x.size(0);
  Tensor whole = exec.empty({rows * group.size(), x.size(1)}, x.dtype(), MemoryKind::communication);
  return group.communicator()->all_gather(std::move(x), equal_rows(group, rows), std::move(whole), label);
}

comm::Pending<Tensor> reduce_scatter_along_tokens(kernels::Executor& exec, const Group& group, Tensor x,
                                                  std::string_view label) {
  if (group.trivial()) return comm::Pending<Tensor>(std::move(x));
  const std::int64_t rows = equal_part(x.size(0), group, "tokens");
  Tensor part = exec.empty({rows, x.size(1)}, x.dtype());
  return group.communicator()->reduce_scatter(std::move(x), equal_rows(group, rows), std::move(part), label);
}

Tensor scatter_along_tokens(const Group& group, const Tensor& x) {
  if (group.trivial()) return x;
  const std::int64_t rows = equal_part(x.size(0), group, "tokens");
  return x.slice(0, group.rank() * rows, (group.rank() + 1) * rows);
}

Tensor gather_along_hidden(kernels::Executor& exec, const Group& group, Tensor x, std::string_view label) {
  if (group.trivial()) return x;
  const std::int64_t rows = x.size(0), width = x.size(1);
  Tensor blocks = exec.empty({rows * group.size(), width}, x.dtype(), MemoryKind::communication);
  blocks = group.communicator()->all_gather(std::move(x), equal_rows(group, rows), std::move(blocks), label).wait();
  Tensor joined = exec.empty({rows, width * group.size()}, blocks.dtype());
  join_columns(exec, blocks, group.size(), joined);
  return joined;
}

Tensor scatter_along_hidden(kernels::Executor& exec, const Group& group, const Tensor& x) {
  if (group.trivial()) return x;
  const std::int64_t width = equal_part(x.size(1), group, "columns");
  Tensor part = exec.empty({x.size(0), width}, x.dtype());
  kernels::copy(exec, x.slice(1, group.rank() * width, (group.rank() + 1) * width), part);
  return part;
}

Tensor reduce_scatter_along_hidden(kernels::Executor& exec, const Group& group, Tensor x, std::string_view label) {
  if (group.trivial()) return x;
  const std::int64_t rows = x.size(0), width = equal_part(x.size(1), group, "columns");
  Tensor blocks = exec.empty({rows * group.size(), width}, x.dtype(), MemoryKind::communication);
  split_columns(exec, x, group.size(), blocks);
  x.reset();
  Tensor part = exec.empty({rows, width}, blocks.dtype());
  return group.communicator()
      ->reduce_scatter(std::move(blocks), equal_rows(group, rows), std::move(part), label)
      .wait();
}

}  // namespace megatron::mesh
