#include "kernels/ref/rope.h"

namespace megatron::kernels::ref {

template <typename T>
void rope_in_place(TensorView x, ConstTensorView cos, ConstTensorView sin, const std::int64_t* positions,
                   bool interleaved, bool inverse) {
  const std::int64_t half = cos.size(1);
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    const T* c = cos.data<T>() + positions[t] * cos.stride(0);
    const T* s = sin.data<T>() + positions[t] * sin.stride(0);
    for (std::int64_t head = 0; head < x.size(1); ++head) {
      T* row = x.data<T>() + t * x.stride(0) + head * x.stride(1);
      for (std::int64_t i = 0; i < half; ++i) {
        T& first = row[interleaved ? 2 * i : i];
        T& second = row[interleaved ? 2 * i + 1 : i + half];
        const T sine = inverse ? -s[i] : s[i];
        const T a = first, b = second;
        first = a * c[i] - b * sine;
        second = b * c[i] + a * sine;
      }
    }
  }
}

template void rope_in_place<float>(TensorView, ConstTensorView, ConstTensorView, const std::int64_t*, bool, bool);
template void rope_in_place<double>(TensorView, ConstTensorView, ConstTensorView, const std::int64_t*, bool, bool);

}  // namespace megatron::kernels::ref
