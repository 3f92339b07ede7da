// bfloat16 and float16 operands of kernels/attention.h.
#include "half_testing.h"
#include "kernels/attention.h"

namespace megatron::kernels {
namespace {

struct Case {
  const char* name;
  std::vector<std::int64_t> starts, key_starts;
  std::int64_t heads, key_heads, size, value_size;
  AttentionParams params;
};

AttentionParams params(std::int64_t window = -1, double cap = 0, double dropout = 0, std::int64_t offset = 0) {
  AttentionParams p;
  p.scale = 0.3;
  p.window = window;
  p.soft_cap = cap;
  p.dropout = dropout;
  p.dropout_key = {11, 22};
  p.causal_offset = offset;
  return p;
}

/// Factors of the operands.
struct Sizes {
  double q = 2, k = 2, v = 1, d_o = 1;
};

template <typename TwinT>
std::vector<float> run(const TwinT& twin, Executor& exec, const Case& c, std::int64_t padding, const Sizes& size = {}) {
  std::vector<std::int64_t> sample, position;
  for (std::size_t s = 0; s + 1 < c.starts.size(); ++s) {
    sample.push_back(100 + static_cast<std::int64_t>(s));
    position.push_back(0);
  }
  const SequenceRanges ranges{c.starts, c.key_starts, sample, position};
  const std::int64_t t = c.starts.back(), tk = c.key_starts.empty() ? t : c.key_starts.back();
  const Shape q_shape{t, c.heads, c.size}, k_shape{tk, c.key_heads, c.size};
  const Shape v_shape{tk, c.key_heads, c.value_size}, o_shape{t, c.heads, c.value_size};
  const Tensor q = twin.random(exec, q_shape, 1, padding, size.q);
  const Tensor k = twin.random(exec, k_shape, 2, padding, size.k);
  const Tensor v = twin.random(exec, v_shape, 3, padding, size.v);
  const Tensor d_o = twin.random(exec, o_shape, 4, padding, size.d_o);
  Tensor o = twin.empty(exec, o_shape), lse = exec.empty({t, c.heads}, DType::float32);
  Tensor dq = twin.random(exec, q_shape, 5, padding), dk = twin.random(exec, k_shape, 6, padding);
  Tensor dv = twin.random(exec, v_shape, 7, padding);
  attention_forward(exec, c.params, ranges, q, k, v, o, lse);
  twin.round(o);
  attention_backward(exec, c.params, ranges, q, k, v, o, lse, d_o, dq, dk, dv);
  std::vector<float> result = values<float>(lse);
  for (const Tensor* part : {&o, &dq, &dk, &dv}) twin.read(result, *part);
  return result;
}

TEST(AttentionHalf, IsTheFloatKernelRoundedOnce) {
  const Case cases[] = {{"one token", {0, 1}, {}, 1, 1, 1, 1, params()},
                        {"packed, grouped, odd sizes", {0, 1, 34, 34, 161}, {}, 4, 2, 7, 33, params()},
                        {"several key and query blocks", {0, 500}, {}, 2, 1, 16, 16, params()},
                        {"window, one key head", {0, 150, 260}, {}, 6, 1, 20, 36, params(13)},
                        {"soft cap and dropout", {0, 60, 130}, {}, 2, 2, 16, 16, params(-1, 2.0, 0.25)},
                        {"decoding with a cache", {0, 1, 4}, {0, 103, 510}, 4, 2, 16, 16, params(-1, 0, 0, 100)},
                        {"rows that see nothing", {0, 12}, {}, 1, 1, 16, 16, params(-1, 0, 0, -5)},
                        {"heads wider than a chunk", {0, 20}, {}, 1, 1, 400, 390, params()},
                        {"no queries beside keys", {0, 0, 5}, {0, 7, 12}, 2, 1, 8, 8, params()}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    for (const std::int64_t padding : {0, 3})
      expect_rounded_results([&](auto twin, Executor& exec) { return run(twin, exec, c, padding); }, padding == 0);
  }
}

AttentionParams scaled(AttentionParams p, double scale) {
  p.scale = scale;
  return p;
}

// Scores of bfloat16 may come from an instruction that adds pairs and takes subnormals as zero: where the scale is a
// power of two, or not; where products are large enough for it, or not, in scores, in their gradients, in both.
TEST(AttentionHalf, ScoresInPairsHaveTheBitsOfFloats) {
  const double tiny = std::ldexp(1.0, -64), large = std::ldexp(1.0, 30);
  for (const double scale : {0.125, 1.0, 0.3})
    for (const Sizes& size :
         {Sizes{}, Sizes{large, 1 / large, tiny, tiny}, Sizes{tiny, large, tiny, tiny / 4},
          Sizes{large, 1 / large, tiny * tiny, 0x1p40}, Sizes{tiny, tiny, 1, large}, Sizes{0, 1, 0, 1}}) {
      const Case cases[] = {{"", {0, 33, 290}, {}, 2, 1, 64, 32, scaled(params(-1, 0, 0.25), scale)},
                            {"", {0, 130}, {}, 1, 1, 18, 70, scaled(params(20), scale)}};
      for (const Case& c : cases)
        expect_rounded<BFloat16>([&](auto twin, Executor& exec) { return run(twin, exec, c, 2, size); }, false);
    }
}

// A row alone, as generation computes it, has the bits it has among others.
TEST(AttentionHalf, RowsDoNotDependOnOtherRows) {
  TestExecutor exec;
  const Tensor q = random_tensor<BFloat16>(exec, {77, 4, 24}, 1), k = random_tensor<BFloat16>(exec, {77, 2, 24}, 2);
  const Tensor v = random_tensor<BFloat16>(exec, {77, 2, 24}, 3);
  Tensor o = exec.empty({77, 4, 24}, DType::bfloat16), lse = exec.empty({77, 4}, DType::float32);
  const std::vector<std::int64_t> all{0, 77};
  attention_forward(exec, params(), {all, {}, {}, {}}, q, k, v, o, lse);
  for (const std::int64_t row : {0, 13, 76}) {
    const std::vector<std::int64_t> one{0, 1}, seen{0, row + 1};
    Tensor own = exec.empty({1, 4, 24}, DType::bfloat16), own_lse = exec.empty({1, 4}, DType::float32);
    attention_forward(exec, params(-1, 0, 0, row), {one, seen, {}, {}}, q.slice(0, row, row + 1),
                      k.slice(0, 0, row + 1), v.slice(0, 0, row + 1), own, own_lse);
    EXPECT_EQ(std::memcmp(own.data<BFloat16>(), o.slice(0, row, row + 1).data<BFloat16>(), 4 * 24 * 2), 0) << row;
    EXPECT_TRUE(same_bits(values<float>(own_lse), values<float>(lse.slice(0, row, row + 1))));
  }
}

TEST(AttentionHalf, RefusesOtherMixes) {
  TestExecutor exec(1, Device::meta);
  const std::vector<std::int64_t> starts{0, 5};
  const SequenceRanges ranges{starts, {}, {}, {}};
  const Tensor q = exec.zeros({5, 2, 8}, DType::bfloat16), f = exec.zeros({5, 2, 8}, DType::float32);
  Tensor o = exec.zeros({5, 2, 8}, DType::bfloat16), lse = exec.zeros({5, 2}, DType::float32);
  attention_forward(exec, params(), ranges, q, q, q, o, lse);
  EXPECT_THROW(attention_forward(exec, params(), ranges, q, f, q, o, lse), Error);
  EXPECT_THROW(attention_forward(exec, params(), ranges, q, q, q, o, exec.zeros({5, 2}, DType::bfloat16)), Error);
}

}  // namespace
}  // namespace megatron::kernels
