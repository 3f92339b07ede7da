// A product to test, whatever its types: sizes, layout, operands.
#pragma once

#include <ostream>

#include "kernel_testing.h"
#include "kernels/matmul.h"

namespace megatron::kernels {

struct Case {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b, accumulate;
};

inline std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.m << 'x' << c.n << 'x' << c.k << (c.transpose_a ? " A^T" : " A") << (c.transpose_b ? " B^T" : " B")
             << (c.accumulate ? " +=" : " =");
}

inline Transpose flag(bool transposed) { return transposed ? Transpose::yes : Transpose::no; }

/// Operands of T, a result of R; a is random_value's stream 1, b 2, what c holds before 3.
template <typename T, typename R = T>
struct Operands {
  Tensor a, b, c;
  Operands(Executor& exec, const Case& p, std::int64_t padding)
      : a(random_tensor<T>(exec, p.transpose_a ? Shape{p.k, p.m} : Shape{p.m, p.k}, 1, padding)),
        b(random_tensor<T>(exec, p.transpose_b ? Shape{p.n, p.k} : Shape{p.k, p.n}, 2, padding)),
        c(random_tensor<R>(exec, {p.m, p.n}, 3, padding)) {}
  void run(Executor& exec, const Case& p) {
    matmul(exec, a, flag(p.transpose_a), b, flag(p.transpose_b), c, p.accumulate);
  }
};

}  // namespace megatron::kernels
