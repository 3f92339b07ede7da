#include "kernels/attention.h"

#include "kernel_testing.h"
#include "kernels/attention_mask.h"

namespace megatron::kernels {
namespace {

struct Case {
  std::vector<std::int64_t> starts;
  std::int64_t heads, key_heads, size, value_size;
  AttentionParams params;
  std::vector<std::int64_t> key_starts;
  const char* name;
};

AttentionParams params(bool causal = true, std::int64_t window = -1, double cap = 0, double dropout = 0,
                       std::int64_t offset = 0, double scale = 0.3) {
  AttentionParams p;
  p.scale = scale;
  p.causal = causal;
  p.window = window;
  p.soft_cap = cap;
  p.dropout = dropout;
  p.dropout_key = {11, 22};
  p.first_head = 3;
  p.causal_offset = offset;
  return p;
}

std::vector<Case> cases() {
  return {{{0, 40}, 2, 2, 16, 16, params(), {}, "plain"},
          {{0, 1, 30, 30, 77}, 4, 2, 24, 8, params(), {}, "packed, grouped, v narrower"},
          {{0, 800}, 1, 1, 32, 32, params(), {}, "several key blocks"},
          {{0, 150, 260}, 6, 1, 20, 36, params(true, 13), {}, "window, one key head, odd sizes"},
          {{0, 450}, 2, 1, 8, 8, params(true, 400), {}, "window over key blocks"},
          {{0, 90}, 3, 3, 16, 16, params(true, -1, 2.0), {}, "soft cap"},
          {{0, 60, 130}, 2, 2, 16, 16, params(true, -1, 0, 0.25), {}, "dropout"},
          {{0, 50}, 2, 2, 16, 16, params(false), {}, "not causal"},
          {{0, 3, 8}, 4, 2, 16, 16, params(true, -1, 0, 0, 100), {0, 103, 208}, "decoding with a cache"},
          {{0, 20}, 1, 1, 400, 390, params(true, -1, 0, 0, 0, 0.05), {}, "heads wider than a chunk"},
          {{0, 12}, 1, 1, 16, 16, params(true, -1, 0, 0, -5), {}, "rows that see nothing"},
          {{0, 500}, 2, 1, 16, 16, params(true, 90, 3.0, 0.1), {}, "all at once"}};
}

template <typename T>
struct Pass {
  Tensor o, lse, dq, dk, dv;
  std::vector<std::int64_t> sample, position;

  Pass(Executor& exec, const Case& c, std::int64_t padding, bool backward = true) {
    for (std::size_t s = 0; s + 1 < c.starts.size(); ++s) {
      sample.push_back(100 + static_cast<std::int64_t>(s));
      position.push_back(0);
    }
    const SequenceRanges ranges{c.starts, c.key_starts, sample, position};
    const std::int64_t t = c.starts.back(), tk = c.key_starts.empty() ? t : c.key_starts.back();
    // Inputs that fp32 holds exactly, in tensors whose heads are `padding` apart.
    const Tensor q = random_tensor<T>(exec, {t, c.heads, c.size}, 1, padding, 2);
    const Tensor k = random_tensor<T>(exec, {tk, c.key_heads, c.size}, 2, padding, 2);
    const Tensor v = random_tensor<T>(exec, {tk, c.key_heads, c.value_size}, 3, padding);
    const Tensor d_o = random_tensor<T>(exec, {t, c.heads, c.value_size}, 4, padding);
    const DType dtype = DTypeOf<T>::value;
    o = random_tensor<T>(exec, {t, c.heads, c.value_size}, 5, padding);
    lse = exec.zeros({t, c.heads}, dtype);
    attention_forward(exec, c.params, ranges, q, k, v, o, lse);
    if (!backward) return;
    dq = random_tensor<T>(exec, {t, c.heads, c.size}, 6, padding);
    dk = random_tensor<T>(exec, {tk, c.key_heads, c.size}, 7, padding);
    dv = random_tensor<T>(exec, {tk, c.key_heads, c.value_size}, 8, padding);
    attention_backward(exec, c.params, ranges, q, k, v, o, lse, d_o, dq, dk, dv);
  }

  std::vector<T> all() const {
    std::vector<T> result;
    for (const Tensor* t : {&o, &lse, &dq, &dk, &dv})
      for (const T value : values<T>(*t)) result.push_back(value);
    return result;
  }
};

TEST(Attention, AgreesWithTheOracle) {
  for (const Case& c : cases()) {
    TestExecutor exec(2);
    const Pass<double> oracle(exec, c, 0);
    for (const std::int64_t padding : {0, 3}) {
      const Pass<float> got(exec, c, padding);
      EXPECT_LT(relative_rms(values<float>(got.o), values<double>(oracle.o)), 1e-6) << c.name;
      EXPECT_LT(relative_rms(values<float>(got.dq), values<double>(oracle.dq)), 1.5e-6) << c.name;
      EXPECT_LT(relative_rms(values<float>(got.dk), values<double>(oracle.dk)), 1.5e-6) << c.name;
      EXPECT_LT(relative_rms(values<float>(got.dv), values<double>(oracle.dv)), 1.5e-6) << c.name;
      const auto a = values<float>(got.lse);
      const auto b = values<double>(oracle.lse);
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (std::isinf(b[i])) {
          EXPECT_EQ(a[i], b[i]) << c.name << " row " << i;  // a row that sees nothing
        } else {
          EXPECT_NEAR(a[i], b[i], 2e-6) << c.name << " row " << i;
        }
      }
    }
  }
}

TEST(Attention, SameBitsOnEveryIsaAndNumberOfThreads) {
  for (const Case& c : cases())
    same_everywhere(
        [&](Executor& exec) {
          const std::vector<float> dense = Pass<float>(exec, c, 0).all();
          EXPECT_TRUE(same_bits(dense, Pass<float>(exec, c, 5).all())) << c.name;
          return dense;
        },
        c.starts.back() < 200);
}

// A sequence's results do not change with what else is in the batch, nor a head's with the other heads.
TEST(Attention, RowsDependOnTheirOwnSequenceAlone) {
  TestExecutor exec(2);
  const Case packed{{0, 100, 500, 530}, 2, 1, 16, 16, params(true, -1, 0, 0.2), {}, ""};
  const Pass<float> all(exec, packed, 0);
  const std::vector<std::int64_t> starts{0, 400}, sample{101}, position{0};
  const auto part = [&](std::uint32_t stream, std::int64_t heads, double scale) {
    return random_tensor<float>(exec, {530, heads, 16}, stream, 0, scale).slice(0, 100, 500);
  };
  Tensor o = exec.empty({400, 2, 16}, DType::float32), lse = exec.empty({400, 2}, DType::float32);
  Tensor dq = exec.empty({400, 2, 16}, DType::float32), dk = exec.empty({400, 1, 16}, DType::float32);
  Tensor dv = exec.empty({400, 1, 16}, DType::float32);
  const SequenceRanges ranges{starts, {}, sample, position};
  attention_forward(exec, packed.params, ranges, part(1, 2, 2), part(2, 1, 2), part(3, 1, 1), o, lse);
  attention_backward(exec, packed.params, ranges, part(1, 2, 2), part(2, 1, 2), part(3, 1, 1), o, lse, part(4, 2, 1),
                     dq, dk, dv);
  EXPECT_TRUE(same_bits(values<float>(all.o.slice(0, 100, 500)), values<float>(o)));
  EXPECT_TRUE(same_bits(values<float>(all.dq.slice(0, 100, 500)), values<float>(dq)));
  EXPECT_TRUE(same_bits(values<float>(all.dk.slice(0, 100, 500)), values<float>(dk)));
  EXPECT_TRUE(same_bits(values<float>(all.dv.slice(0, 100, 500)), values<float>(dv)));
  EXPECT_TRUE(same_bits(values<float>(all.lse.slice(0, 100, 500)), values<float>(lse)));
}

// Decoding: the last queries alone, against all keys, give the bits of the whole prompt's rows.
TEST(Attention, QueriesCutFromTheirSequenceKeepTheirBits) {
  TestExecutor exec;
  const Case whole{{0, 600}, 2, 2, 16, 16, params(), {}, ""};
  const Pass<float> all(exec, whole, 0, false);
  const Tensor q = random_tensor<float>(exec, {600, 2, 16}, 1, 0, 2).slice(0, 595, 600);
  const Tensor k = random_tensor<float>(exec, {600, 2, 16}, 2, 0, 2), v = random_tensor<float>(exec, {600, 2, 16}, 3);
  Tensor o = exec.empty({5, 2, 16}, DType::float32), lse = exec.empty({5, 2}, DType::float32);
  const std::vector<std::int64_t> starts{0, 5}, key_starts{0, 600};
  attention_forward(exec, params(true, -1, 0, 0, 595), {starts, key_starts, {}, {}}, q, k, v, o, lse);
  EXPECT_TRUE(same_bits(values<float>(all.o.slice(0, 595, 600)), values<float>(o)));
  EXPECT_TRUE(same_bits(values<float>(all.lse.slice(0, 595, 600)), values<float>(lse)));
}

TEST(Attention, OracleGradientsAreTheDerivatives) {
  TestExecutor exec;
  const std::int64_t t = 7, heads = 2, size = 3;
  const std::vector<std::int64_t> starts{0, 4, 7}, sample{5, 6}, position{0, 0};
  for (const AttentionParams& p : {params(), params(true, 2, 1.5, 0.3)}) {
    const std::int64_t count_q = t * heads * size, count_k = t * size;
    const auto loss = [&](std::int64_t moved, double by, Tensor* grads) {
      const auto part = [&](std::uint32_t stream, std::int64_t offset) {
        return [=](std::int64_t i) {
          return static_cast<double>(random_value(stream, i)) + (i + offset == moved ? by : 0);
        };
      };
      const Tensor q = make_tensor<double>(exec, {t, heads, size}, part(1, 0));
      const Tensor k = make_tensor<double>(exec, {t, 1, size}, part(2, count_q));
      const Tensor v = make_tensor<double>(exec, {t, 1, size}, part(3, count_q + count_k));
      const Tensor d_o = random_tensor<double>(exec, {t, heads, size}, 4);
      Tensor o = exec.empty({t, heads, size}, DType::float64), lse = exec.empty({t, heads}, DType::float64);
      const SequenceRanges ranges{starts, {}, sample, position};
      attention_forward(exec, p, ranges, q, k, v, o, lse);
      if (grads != nullptr) attention_backward(exec, p, ranges, q, k, v, o, lse, d_o, grads[0], grads[1], grads[2]);
      double sum = 0;
      for (std::int64_t i = 0; i < count_q; ++i) sum += o.data<double>()[i] * d_o.data<double>()[i];
      return sum;
    };
    Tensor grads[3] = {exec.empty({t, heads, size}, DType::float64), exec.empty({t, 1, size}, DType::float64),
                       exec.empty({t, 1, size}, DType::float64)};
    loss(-1, 0, grads);
    std::vector<double> got;
    for (const Tensor& g : grads)
      for (const double value : values<double>(g)) got.push_back(value);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      EXPECT_NEAR(got[i], (loss(at, 1e-5, nullptr) - loss(at, -1e-5, nullptr)) / 2e-5, 1e-8) << i;
    }
  }
}

// With v = 1 the output is the sum of the kept probabilities: its mean over many rows is 1.
TEST(Attention, DropoutKeepsTheMean) {
  TestExecutor exec(2);
  AttentionParams p = params(true, -1, 0, 0.3);
  p.scale = 0;
  const std::vector<std::int64_t> starts{0, 400}, sample{1}, position{0};
  const Tensor q = random_tensor<float>(exec, {400, 4, 8}, 1), k = random_tensor<float>(exec, {400, 4, 8}, 2);
  const Tensor v = make_tensor<float>(exec, {400, 4, 8}, [](std::int64_t) { return 1.0; });
  Tensor o = exec.empty({400, 4, 8}, DType::float32), lse = exec.empty({400, 4}, DType::float32);
  attention_forward(exec, p, {starts, {}, sample, position}, q, k, v, o, lse);
  double sum = 0;
  for (const float value : values<float>(o)) sum += static_cast<double>(value);
  EXPECT_NEAR(sum / (400 * 4 * 8), 1.0, 0.02);
}

// What a cut into micro-batches or shards of heads looks like: the same logical elements drop the same probabilities.
TEST(Attention, DropoutDependsOnLogicalPlaceAlone) {
  TestExecutor exec;
  AttentionParams p = params(true, -1, 0, 0.3);
  p.first_head = 0;
  const std::vector<std::int64_t> starts{0, 60, 120}, sample{7, 9}, position{0, 0};
  const Tensor q = random_tensor<float>(exec, {120, 4, 8}, 1), k = random_tensor<float>(exec, {120, 4, 8}, 2);
  const Tensor v = random_tensor<float>(exec, {120, 4, 8}, 3);
  Tensor o = exec.empty({120, 4, 8}, DType::float32), lse = exec.empty({120, 4}, DType::float32);
  attention_forward(exec, p, {starts, {}, sample, position}, q, k, v, o, lse);
  const std::vector<std::int64_t> half_starts{0, 60}, half_sample{9}, half_position{0};
  p.first_head = 2;
  const auto cut = [](const Tensor& t) { return t.slice(0, 60, 120).slice(1, 2, 4); };
  Tensor half = exec.empty({60, 2, 8}, DType::float32), half_lse = exec.empty({60, 2}, DType::float32);
  attention_forward(exec, p, {half_starts, {}, half_sample, half_position}, cut(q), cut(k), cut(v), half, half_lse);
  EXPECT_TRUE(same_bits(values<float>(cut(o)), values<float>(half)));
}

TEST(Attention, CountsVisiblePairsAndChecksShapes) {
  std::int64_t counted[2];
  for (const bool meta : {false, true}) {
    TestExecutor exec(1, meta ? Device::meta : Device::cpu);
    const Case c{{0, 10, 14}, 4, 2, 6, 2, params(), {}, ""};
    Pass<float> run(exec, c, 0);
    EXPECT_EQ(exec.counters().attention_flops, 3 * 2 * (55 + 10) * (6 + 2) * 4);
    counted[meta ? 1 : 0] = exec.allocator().tracker().peak(MemoryKind::scratch);
    Tensor q = exec.zeros({4, 2, 8}, DType::float32), k = exec.zeros({4, 1, 8}, DType::float32);
    Tensor lse = exec.zeros({4, 2}, DType::float32), wrong = exec.zeros({4, 1, 6}, DType::float32);
    const std::vector<std::int64_t> good{0, 4}, bad{0, 3};
    EXPECT_NO_THROW(attention_forward(exec, params(), {good, {}, {}, {}}, q, k, k, q, lse));
    EXPECT_THROW(attention_forward(exec, params(), {bad, {}, {}, {}}, q, k, k, q, lse), Error);
    EXPECT_THROW(attention_forward(exec, params(), {good, {}, {}, {}}, q, wrong, k, q, lse), Error);
    EXPECT_THROW(attention_forward(exec, params(true, -1, 0, 0.5), {good, {}, {}, {}}, q, k, k, q, lse), Error);
  }
  EXPECT_EQ(counted[0], counted[1]);
}

TEST(Attention, EmptyBatch) {
  TestExecutor exec;
  const Case none{{0}, 2, 1, 8, 8, params(), {}, ""};
  EXPECT_NO_THROW(Pass<float>(exec, none, 0));
  const Case empty_sequences{{0, 0, 0}, 2, 1, 8, 8, params(), {}, ""};
  EXPECT_NO_THROW(Pass<float>(exec, empty_sequences, 0));
}

}  // namespace
}  // namespace megatron::kernels
