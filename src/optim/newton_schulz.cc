#include "optim/newton_schulz.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/matmul.h"
#include "kernels/optimizer_step.h"
#include "kernels/optimizer_variants.h"

namespace megatron::optim {
namespace {

using kernels::Transpose;

constexpr double kSmallestNorm = 1e-7;

constexpr NewtonSchulzStep kSimple[] = {{3.4445, -4.7750, 2.0315}};
constexpr NewtonSchulzStep kQuintic[] = {{4.0848, -6.8946, 2.9270},
                                         {3.9505, -6.3029, 2.6377},
                                         {3.7418, -5.5913, 2.3037},
                                         {2.8769, -3.1427, 1.2046},
                                         {2.8366, -3.0525, 1.2012}};
// arXiv 2505.16932
constexpr NewtonSchulzStep kPolarExpress[] = {
    {7.2086, -15.5131, 9.0178}, {3.9623, -2.5813, 0.4542}, {3.9466, -2.5765, 0.4544}, {3.8991, -2.5671, 0.4566},
    {3.7186, -2.5308, 0.4653},  {3.1390, -2.3073, 0.4733}, {2.1715, -1.5246, 0.3885}, {1.8648, -1.2224, 0.3577}};
constexpr NewtonSchulzStep kAol[] = {
    {4.0098, -7.0585, 2.4635}, {3.4585, -5.5479, 2.5959}, {2.7573, -3.2939, 1.4254}, {2.7215, -3.0494, 1.3169}};

/// How the rows of a product are shared, and the matrix put together again.
class RowShares {
 public:
  RowShares(kernels::Executor& exec, const mesh::Group* group)
      : exec_(exec), group_(group != nullptr && !group->trivial() ? group : nullptr) {}

  /// `full` = the matrix whose rows [begin, end) compute(begin, end, rows) writes to `rows`.
  template <typename Compute>
  void fill(Tensor& full, const Compute& compute) const {
    const std::int64_t rows = full.shape()[0], cols = full.shape()[1];
    if (group_ == nullptr) return compute(0, rows, full);
    std::vector<std::int64_t> counts;
    for (int r = 0; r < group_->size(); ++r) counts.push_back(begin_of(rows, r + 1) - begin_of(rows, r));
    const std::int64_t begin = begin_of(rows, group_->rank()), end = begin_of(rows, group_->rank() + 1);
    Tensor mine = exec_.empty(Shape{end - begin, cols}, full.dtype(), MemoryKind::communication);
    if (end > begin) compute(begin, end, mine);
    full = group_->communicator()->all_gather(mine, counts, std::move(full), "rows of an orthogonalised matrix").wait();
  }

 private:
  std::int64_t begin_of(std::int64_t rows, int rank) const { return rows * rank / group_->size(); }

  kernels::Executor& exec_;
  const mesh::Group* group_;
};

void normalize(kernels::Executor& exec, Tensor& x) {
  ExactSum squares;
  Tensor flat = x.flat();
  kernels::add_squared_norm(exec, flat, squares);
  const double norm = std::sqrt(squares.value());
  kernels::weighted_sum(exec, 1.0 / std::max(norm, kSmallestNorm), flat, 0.0, {}, flat);
}

}  // namespace

std::span<const NewtonSchulzStep> newton_schulz_steps(spec::MuonCoefficients coefficients) {
  switch (coefficients) {
    case spec::MuonCoefficients::simple:
      return kSimple;
    case spec::MuonCoefficients::quintic:
      return kQuintic;
    case spec::MuonCoefficients::polar_express:
      return kPolarExpress;
    case spec::MuonCoefficients::aol:
      return kAol;
  }
  return kQuintic;
}

Tensor newton_schulz(kernels::Executor& exec, Tensor x, std::span<const NewtonSchulzStep> steps, std::int64_t count,
                     const mesh::Group* split) {
  MEGATRON_CHECK_EQ(x.num_dims(), 2, "a matrix to orthogonalise");
  MEGATRON_CHECK(!steps.empty() && count % std::ssize(steps) == 0, count, " steps of a set of ", steps.size());
  const std::int64_t rows = x.shape()[0], cols = x.shape()[1], small = std::min(rows, cols);
  const bool tall = rows > cols;
  const RowShares shares(exec, split);
  normalize(exec, x);
  Tensor gram = exec.empty(Shape{small, small}, x.dtype());
  Tensor factor = exec.empty(Shape{small, small}, x.dtype());
  Tensor next = exec.empty(x.shape(), x.dtype());
  for (std::int64_t i = 0; i < count; ++i) {
    const NewtonSchulzStep& step = steps[static_cast<std::size_t>(i % std::ssize(steps))];
    shares.fill(gram, [&](std::int64_t begin, std::int64_t end, Tensor& out) {
      if (tall)
        kernels::matmul(exec, x.slice(1, begin, end), Transpose::yes, x, Transpose::no, out);
      else
        kernels::matmul(exec, x.slice(0, begin, end), Transpose::no, x, Transpose::yes, out);
    });
    shares.fill(factor, [&](std::int64_t begin, std::int64_t end, Tensor& out) {
      const Tensor part = gram.slice(0, begin, end);
      kernels::matmul(exec, part, Transpose::no, gram, Transpose::no, out);
      Tensor flat = out.flat();
      kernels::weighted_sum(exec, step.b, part.flat(), step.c, flat, flat);
    });
    shares.fill(next, [&](std::int64_t begin, std::int64_t end, Tensor& out) {
      Tensor flat = out.flat();
      kernels::weighted_sum(exec, step.a, x.slice(0, begin, end).flat(), 0.0, {}, flat);
      // Both factors of the left side are symmetric to the bit, so either side gives the same sums.
      if (tall)
        kernels::matmul(exec, x.slice(0, begin, end), Transpose::no, factor, Transpose::no, out, true);
      else
        kernels::matmul(exec, factor.slice(0, begin, end), Transpose::no, x, Transpose::no, out, true);
    });
    std::swap(x, next);
  }
  return x;
}

double muon_scale(spec::MuonScaleMode mode, std::int64_t out, std::int64_t in) {
  const auto rows = static_cast<double>(out), cols = static_cast<double>(in);
  switch (mode) {
    case spec::MuonScaleMode::spectral:
      return std::sqrt(std::max(rows, cols));
    case spec::MuonScaleMode::unit_rms_norm:
      return std::sqrt(rows / cols);
    case spec::MuonScaleMode::shape_scaling:
      return std::sqrt(std::max(1.0, rows / cols));
  }
  return 1.0;
}

}  // namespace megatron::optim
