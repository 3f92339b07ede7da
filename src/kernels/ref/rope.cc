#include "kernels/ref/rope.h"

namespace megatron::kernels::ref {

void rope_in_place(TensorView x, ConstTensorView cos, ConstTensorView sin, const std::int64_t* positions,
                   bool interleaved, bool inverse) {
  const std::int64_t half = cos.size(1);
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    const double* c = cos.data<double>() + positions[t] * cos.stride(0);
    const double* s = sin.data<double>() + positions[t] * sin.stride(0);
    for (std::int64_t head = 0; head < x.size(1); ++head) {
      double* row = x.data<double>() + t * x.stride(0) + head * x.stride(1);
      for (std::int64_t i = 0; i < half; ++i) {
        double& first = row[interleaved ? 2 * i : i];
        double& second = row[interleaved ? 2 * i + 1 : i + half];
        const double sine = inverse ? -s[i] : s[i];
        const double a = first, b = second;
        first = a * c[i] - b * sine;
        second = b * c[i] + a * sine;
      }
    }
  }
}

}  // namespace megatron::kernels::ref
