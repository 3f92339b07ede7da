// Cuts the rows of a matrix into tasks of about equal size, by shape only.
#pragma once

#include <algorithm>

#include "kernels/executor.h"

namespace megatron::kernels::cpu {

/// body(first row, end row) on all threads; about 16 Ki elements per task.
template <typename Body>
void parallel_rows(Executor& exec, std::int64_t rows, std::int64_t width, const Body& body) {
  const std::int64_t group = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(width, 1));
  exec.parallel_for((rows + group - 1) / group,
                    [&](std::int64_t task, int) { body(task * group, std::min(rows, (task + 1) * group)); });
}

/// body(begin, end) over a flat range, in pieces of 16 Ki elements.
template <typename Body>
void parallel_range(Executor& exec, std::int64_t count, const Body& body) {
  parallel_rows(exec, count, 1, body);
}

}  // namespace megatron::kernels::cpu
