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

/// body(begin, end) over a flat range. Long ranges in pieces of 512 Ki elements, 2 MiB of floats: where the memory is
/// new, no two threads clear the same huge page. Short ones in pieces of 16 Ki.
template <typename Body>
void parallel_range(Executor& exec, std::int64_t count, const Body& body) {
  const std::int64_t piece = count >= std::int64_t{1} << 22 ? std::int64_t{1} << 19 : std::int64_t{1} << 14;
  exec.parallel_for((count + piece - 1) / piece,
                    [&](std::int64_t task, int) { body(task * piece, std::min(count, (task + 1) * piece)); });
}

}  // namespace megatron::kernels::cpu
