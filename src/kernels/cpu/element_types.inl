// Kernels over an element type: what picks float, BFloat16 or Float16 from dtypes that are known at run time. Included
// once per instruction set, behind vector_math.inl; include "base/float16.h" above foreach_target.h.
#include "kernels/cpu/vector_float16.inl"
// clang-format off: the order of inclusion is fixed by Highway
HWY_BEFORE_NAMESPACE();
namespace megatron::kernels::cpu::HWY_NAMESPACE {
// clang-format on

/// to = from, element by element, rounded where To is the narrower type.
template <typename From, typename To>
HWY_INLINE void convert(const From* from, To* to, std::int64_t count) {
  for_each_vector(count, [&](std::int64_t i, std::int64_t valid)
                             HWY_ATTR { store_valid(load_valid(from + i, valid), to + i, valid); });
}

/// New weights from element i on, to p and to `rounded`; with float elements the latter is not there.
template <typename T>
HWY_INLINE void store_weights(V weights, float* p, [[maybe_unused]] T* rounded, std::int64_t i, std::int64_t valid) {
  store_valid(weights, p + i, valid);
  if constexpr (sizeof(T) == 2) store_valid(weights, rounded + i, valid);
}

/// body(T()) for the element type T of float32, bfloat16 or float16.
template <typename Body>
HWY_INLINE void with_type(DType dtype, const Body& body) {
  if (dtype == DType::bfloat16)
    body(BFloat16());
  else if (dtype == DType::float16)
    body(Float16());
  else
    body(float());
}
/// body(A(), B()): both alike, or A float beside a 16-bit B.
template <typename Body>
HWY_INLINE void with_stream_types(DType a, DType b, const Body& body) {
  if (a == b)
    with_type(a, [&](auto both) HWY_ATTR { body(both, both); });
  else
    with_type(b, [&](auto other) HWY_ATTR { body(float(), other); });
}
/// body(A(), B()): both alike, or one of them float.
template <typename Body>
HWY_INLINE void with_types(DType a, DType b, const Body& body) {
  if (b == DType::float32)
    with_type(a, [&](auto other) HWY_ATTR { body(other, float()); });
  else
    with_stream_types(a, b, body);
}

}  // namespace megatron::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
