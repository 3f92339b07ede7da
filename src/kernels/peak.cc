#include "kernels/peak.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/float16.h"
#include "kernels/initialize.h"
#include "kernels/matmul.h"

namespace megatron::kernels {
namespace {

/// Operands and result of one square product, in memory of their own.
class SquareProduct {
 public:
  SquareProduct(Executor& exec, std::int64_t size, DType type)
      : exec_(exec),
        type_(type),
        a_(random(size, 0)),
        b_(random(size, size)),
        c_(make(size, type)),
        flops_(2.0 * static_cast<double>(size * size) * static_cast<double>(size)) {}
  /// FLOP/s of the fastest run.
  double best_rate(double seconds_budget, std::int64_t least) {
    const Timing timing =
        time_repeated(seconds_budget, least, [&] { matmul(exec_, a_, Transpose::no, b_, Transpose::no, c_); });
    return flops_ / timing.best_seconds;
  }

 private:
  Tensor make(std::int64_t size, DType type) {
    return Tensor::empty(*allocator_, {size, size}, type, MemoryKind::scratch);
  }
  Tensor random(std::int64_t size, std::int64_t first_row) {
    Tensor values = make(size, DType::float32);
    fill_uniform(exec_, make_philox_key(1234, RandomPurpose::test, 0), 1.0, first_row, 0, size, values);
    if (type_ == DType::float32) return values;
    Tensor rounded = make(size, type_);
    if (type_ == DType::bfloat16)
      round_rows<BFloat16>(values, rounded);
    else
      round_rows<Float16>(values, rounded);
    return rounded;
  }
  template <typename T>
  void round_rows(const Tensor& from, Tensor& to) {
    const float* values = from.data<float>();
    T* rounded = to.data<T>();
    const std::int64_t width = from.size(1);
    exec_.parallel_for(from.size(0), [&](std::int64_t row, int) {
      for (std::int64_t i = row * width; i < (row + 1) * width; ++i) rounded[i] = T(values[i]);
    });
  }

  Executor& exec_;
  DType type_;
  std::shared_ptr<tensor::Allocator> allocator_ = tensor::Allocator::create(Device::cpu);
  Tensor a_, b_, c_;
  double flops_;
};

}  // namespace

Timing time_repeated(double seconds_budget, std::int64_t least, const std::function<void()>& body) {
  body();
  std::vector<double> seconds;
  const auto start = Clock::now();
  while (static_cast<std::int64_t>(seconds.size()) < least || seconds_since(start) < seconds_budget) {
    const auto begin = Clock::now();
    body();
    seconds.push_back(std::max(seconds_since(begin), 1e-9));
  }
  std::sort(seconds.begin(), seconds.end());
  const std::size_t n = seconds.size();
  Timing timing;
  timing.repetitions = static_cast<std::int64_t>(n);
  timing.best_seconds = seconds.front();
  timing.median_seconds = n % 2 == 1 ? seconds[n / 2] : 0.5 * (seconds[n / 2 - 1] + seconds[n / 2]);
  return timing;
}

double matmul_peak(Executor& exec, std::span<const std::int64_t> sizes, std::int64_t repetitions, DType type) {
  if (exec.is_meta()) return 0.0;
  double best = 0.0;
  for (const std::int64_t size : sizes)
    best = std::max(best, SquareProduct(exec, size, type).best_rate(0.0, repetitions));
  return best;
}

double matmul_peak_within(Executor& exec, double seconds_budget, DType type) {
  if (exec.is_meta()) return 0.0;
  // A small product first: it tells which size fits the budget.
  std::int64_t size = 512;
  double best = SquareProduct(exec, size, type).best_rate(0.05 * seconds_budget, 3);
  const auto product_seconds = [&](std::int64_t n) { return 2.0 * static_cast<double>(n * n * n) / best; };
  while (size < 2048 && 4.0 * product_seconds(2 * size) <= 0.9 * seconds_budget) size *= 2;
  return std::max(best, SquareProduct(exec, size, type).best_rate(0.8 * seconds_budget, 3));
}

}  // namespace megatron::kernels
