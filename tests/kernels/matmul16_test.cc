// Products of bfloat16 and float16 against their contract in scalar code, the double oracle, and themselves cut up.
#include <bit>

#include "base/float16.h"
#include "product_case.h"

namespace megatron::kernels {
namespace {

template <typename T>
std::vector<float> floats(const std::vector<T>& elements) {
  return {elements.begin(), elements.end()};
}

// One fused step as the contract has it: subnormals are zero before and after.
float flushed(float x) { return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }
float flushing_fma(float a, float b, float c) {
  const float sum = std::fma(a, b, c);
  // Exact in double: products of bfloat16 have 16 bits. Scaled, so that rounding to float sees no subnormal.
  const bool borderline = std::abs(sum) == 0x1p-126F;
  if (borderline && std::abs(std::fma(a * 0x1p40F, b * 0x1p40F, c * 0x1p80F)) < 0x1p-46F)
    return std::copysign(0.0F, sum);
  return flushed(sum);
}

/// The chain over one chunk; a(k) and b(k) are the operands, already of the 16-bit type.
template <typename T, typename A, typename B>
float chain(std::int64_t begin, std::int64_t end, const A& a, const B& b) {
  float sum = 0;
  if constexpr (std::is_same_v<T, Float16>) {
    for (std::int64_t k = begin; k < end; ++k) sum = std::fma(a(k), b(k), sum);
  } else {
    for (std::int64_t k = begin; k < end; k += 2) {
      const bool both = k + 1 < end;
      sum = flushing_fma(both ? flushed(a(k + 1)) : 0, both ? flushed(b(k + 1)) : 0, sum);
      sum = flushing_fma(flushed(a(k)), flushed(b(k)), sum);
    }
  }
  return sum;
}

template <typename T, typename R, typename A, typename B>
float element_by_contract(std::int64_t depth, bool accumulate, float old, const A& a, const B& b) {
  float total = old;
  for (std::int64_t k = 0; k < depth; k += kMatmulChunk) {
    const float sum = chain<T>(k, std::min(depth, k + kMatmulChunk), a, b);
    total = k == 0 && !accumulate ? sum : total + sum;
  }
  return static_cast<float>(R(total));
}

template <typename T, typename R>
std::vector<float> by_contract(const Case& p) {
  const auto rounded = [](std::uint32_t stream, std::int64_t i) {
    return static_cast<float>(T(random_value(stream, i)));
  };
  std::vector<float> c;
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j)
      c.push_back(element_by_contract<T, R>(
          p.k, p.accumulate, random_value(3, i * p.n + j),
          [&](std::int64_t k) { return rounded(1, p.transpose_a ? k * p.m + i : i * p.k + k); },
          [&](std::int64_t k) { return rounded(2, p.transpose_b ? j * p.k + k : k * p.n + j); }));
  return c;
}

/// same_everywhere() with and without the instruction for pairs.
std::vector<float> same_with_and_without_pairs(const std::function<std::vector<float>(Executor&)>& compute) {
  const std::vector<float> first = same_everywhere(compute);
  allow_pair_instruction(false);
  const std::vector<float> widened = same_everywhere(compute, false);
  allow_pair_instruction(true);
  EXPECT_TRUE(same_bits(first, widened)) << "without the instruction for pairs";
  return first;
}

std::vector<Case> cases(bool may_accumulate) {
  std::vector<Case> result;
  const std::int64_t shapes[][3] = {{1, 1, 1},   {1, 50, 7},    {3, 5, 401},    {14, 32, 384}, {15, 33, 385},
                                    {29, 16, 3}, {64, 100, 70}, {31, 127, 801}, {127, 17, 65}, {7, 70, 1},
                                    {7, 33, 2},  {33, 7, 383},  {28, 64, 1537}, {10, 40, 3073}};
  int index = 0;
  for (const auto& s : shapes)
    for (int layout = 0; layout < 3; ++layout, ++index)
      result.push_back({s[0], s[1], s[2], layout == 2, layout == 0, may_accumulate && index % 2 == 1});
  result.push_back({20, 30, 11, true, true, false});
  return result;
}

template <typename T, typename R>
void follows_the_contract() {
  for (const Case& p : cases(std::is_same_v<R, float>)) {
    const std::vector<float> expected = by_contract<T, R>(p);
    for (const std::int64_t padding : {0, 5}) {
      const std::vector<float> got = same_with_and_without_pairs([&](Executor& exec) {
        Operands<T, R> o(exec, p, padding);
        o.run(exec, p);
        return floats(values<R>(o.c));
      });
      EXPECT_TRUE(same_bits(expected, got)) << p << " padding " << padding;
    }
  }
}

TEST(MatmulBFloat16, FollowsTheContractOnEveryIsa) { follows_the_contract<BFloat16, float>(); }
TEST(MatmulBFloat16, RoundsOnceIntoItsOwnType) { follows_the_contract<BFloat16, BFloat16>(); }
TEST(MatmulFloat16, FollowsTheContractOnEveryIsa) { follows_the_contract<Float16, float>(); }
TEST(MatmulFloat16, RoundsOnceIntoItsOwnType) { follows_the_contract<Float16, Float16>(); }

template <typename T>
void writes_nothing_beside() {
  TestExecutor exec(2);
  std::vector<Case> all = cases(false);
  all.push_back({310, 700, 400, false, true, false});  // large enough for each thread to pack for itself
  all.push_back({310, 700, 1700, true, false, false});
  for (const Case& p : all) {
    Operands<T, T> o(exec, p, 5);
    o.run(exec, p);
    const T* data = o.c.template data<T>();
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = p.n; j < p.n + 5; ++j)
        ASSERT_EQ(static_cast<float>(data[i * (p.n + 5) + j]), -77) << p << " row " << i;
  }
}

TEST(MatmulBFloat16, WritesNothingBesideC) { writes_nothing_beside<BFloat16>(); }
TEST(MatmulFloat16, WritesNothingBesideC) { writes_nothing_beside<Float16>(); }

// A dense copy of a view's elements in a tensor with `padding` elements between rows.
template <typename T>
Tensor duplicate(Executor& exec, const Tensor& from, std::int64_t padding) {
  const std::vector<T> elements = values<T>(from);
  return make_tensor<T>(
      exec, from.shape(), [&](std::int64_t i) { return static_cast<float>(elements[static_cast<std::size_t>(i)]); },
      padding);
}

// Numbers in [0, below), the same in every run.
class Draw {
 public:
  std::int64_t operator()(std::int64_t below) {
    return static_cast<std::int64_t>(philox4x32({5, 2}, {count_++, 0, 0, 0})[0] % static_cast<std::uint32_t>(below));
  }

 private:
  std::uint32_t count_ = 0;
};

// Computes a random box of C from slices of A and B into a tensor of its own and compares with that box of `whole`.
template <typename T, typename R>
void compare_slice(Executor& exec, const Case& p, const Operands<T, R>& inputs, const Tensor& whole, std::int64_t width,
                   Draw& draw) {
  const std::int64_t heights[] = {1, 2, 6, 14, 15, 100};
  const std::int64_t rows = std::min(p.m, heights[draw(6)]), columns = std::min(p.n, width);
  const std::int64_t row = draw(p.m - rows + 1), column = draw(p.n - columns + 1);
  const auto box = [&](const Tensor& t) { return t.slice(0, row, row + rows).slice(1, column, column + columns); };
  Tensor c = duplicate<R>(exec, box(inputs.c), 3);
  matmul(exec, inputs.a.slice(p.transpose_a ? 1 : 0, row, row + rows), flag(p.transpose_a),
         inputs.b.slice(p.transpose_b ? 0 : 1, column, column + columns), flag(p.transpose_b), c, p.accumulate);
  EXPECT_TRUE(same_bits(floats(values<R>(box(whole))), floats(values<R>(c))))
      << p << " rows " << row << '+' << rows << " columns " << column << '+' << columns << " on " << current_isa()
      << " with " << exec.num_threads() << " threads";
}

// One element's bits depend on its row of A, its column of B and K alone: not on the slice, the threads, the tiles, the
// instruction set. `seen` has the bits of the products before.
template <typename T, typename R>
void compare_slices(const Case& p, const Operands<T, R>& inputs, Draw& draw, std::vector<float>& seen) {
  for (int threads = 1; threads <= 4; ++threads) {
    TestExecutor exec(threads);
    Tensor whole = duplicate<R>(exec, inputs.c, 1);
    matmul(exec, inputs.a, flag(p.transpose_a), inputs.b, flag(p.transpose_b), whole, p.accumulate);
    const std::vector<float> bits = floats(values<R>(whole));
    if (seen.empty()) seen = bits;
    EXPECT_TRUE(same_bits(seen, bits)) << p << " on " << current_isa() << " with " << threads << " threads";
    for (const std::int64_t width : {1, 3, 7, 17, 33, 128}) compare_slice(exec, p, inputs, whole, width, draw);
  }
}

template <typename T, typename R>
void is_invariant(const std::vector<Case>& shapes, std::int64_t padding = 3) {
  Draw draw;
  for (const Case& p : shapes) {
    TestExecutor first(1);
    const Operands<T, R> inputs(first, p, padding);
    std::vector<float> seen;
    for (const std::string& isa : supported_isas()) {
      if (isa == "scalar") continue;  // held to the contract by the smaller cases above; too slow for these
      use_isa(isa);
      for (const bool pairs : {true, false}) {
        if (pairs && !uses_pair_instruction()) continue;
        allow_pair_instruction(pairs);
        compare_slices(p, inputs, draw, seen);
        allow_pair_instruction(true);
      }
    }
    use_isa("");
  }
}

TEST(MatmulBFloat16, matmul_slice_invariance) {
  is_invariant<BFloat16, float>({{150, 450, 901, false, true, false},
                                 {60, 1300, 500, false, false, true},
                                 {160, 210, 391, true, false, true},
                                 {1100, 40, 70, true, false, false},
                                 {30, 100, 3201, false, true, false},
                                 // large enough for each thread to pack for itself
                                 {300, 710, 801, false, true, false},
                                 {2100, 690, 391, true, false, true}});
  // A rounded result: K of one group of chunks, of several, and of several blocks.
  is_invariant<BFloat16, BFloat16>({{150, 450, 901, false, true, false},
                                    {40, 130, 1601, true, false, false},
                                    {1030, 70, 1700, false, false, false},
                                    {300, 710, 2000, false, true, false},
                                    {20, 4300, 1601, false, false, false}});
}

// Rows of whole pairs, and some that are a multiple of 4 KiB apart: A may be read where it is.
TEST(MatmulBFloat16, slice_invariance_with_rows_of_whole_pairs) {
  is_invariant<BFloat16, float>({{150, 450, 902, false, true, false}, {300, 710, 2044, false, false, true}}, 4);
  is_invariant<BFloat16, BFloat16>({{150, 450, 900, false, true, false},
                                    {1030, 70, 1700, false, false, false},
                                    {300, 710, 2044, false, true, false}},
                                   4);
}

TEST(MatmulFloat16, matmul_slice_invariance) {
  is_invariant<Float16, float>({{150, 450, 901, false, true, false}, {2100, 690, 391, true, false, true}});
  is_invariant<Float16, Float16>({{150, 450, 901, false, true, false},
                                  {1030, 70, 1700, false, false, false},
                                  {20, 4300, 501, false, false, false}});
}

template <typename T>
void is_close_to_the_oracle(double bound_of_own_type) {
  for (const Case& p : {Case{40, 70, 768, false, true, false}, Case{40, 70, 3072, true, false, false}}) {
    TestExecutor exec;
    Operands<T, float> single(exec, p, 0);
    Operands<T, T> own(exec, p, 0);
    Operands<double, double> oracle(exec, p, 0);
    for (auto& [from, to] : {std::pair{single.a, oracle.a}, std::pair{single.b, oracle.b}}) {
      const std::vector<T> elements = values<T>(from);
      std::copy_n(elements.begin(), elements.size(), Tensor(to).data<double>());
    }
    single.run(exec, p);
    own.run(exec, p);
    oracle.run(exec, p);
    EXPECT_LT(relative_rms(values<float>(single.c), values<double>(oracle.c)), 5e-7) << p;
    EXPECT_LT(relative_rms(floats(values<T>(own.c)), values<double>(oracle.c)), bound_of_own_type) << p;
  }
}

// Rounding once to p bits gives an rms error of at most 2⁻ᵖ/√3.
TEST(MatmulBFloat16, IsCloseToTheOracle) { is_close_to_the_oracle<BFloat16>(0x1p-8 / 1.73); }
TEST(MatmulFloat16, IsCloseToTheOracle) { is_close_to_the_oracle<Float16>(0x1p-11 / 1.73); }

// 16-bit patterns with exponents in [first, first + count).
std::uint16_t pattern(std::uint32_t stream, std::int64_t index, std::uint32_t first, std::uint32_t count) {
  const std::uint32_t word = philox4x32({stream, 99}, {static_cast<std::uint32_t>(index), 0, 0, 0})[0];
  return static_cast<std::uint16_t>((word & 0x807FU) | ((first + (word >> 16) % count) << 7));
}

Tensor of_patterns(Executor& exec, const Shape& shape, std::uint32_t stream, std::uint32_t first, std::uint32_t count) {
  Tensor t = exec.empty(shape, DType::bfloat16);
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.data<BFloat16>()[i] = BFloat16::from_bits(pattern(stream, i, first, count));
  return t;
}

// The instruction, the widening kernels of every instruction set, and scalar code, where numbers are subnormal, become
// so, stand at the border, are large, infinite, or NaN.
TEST(MatmulBFloat16, TreatsSubnormalsAndInfinitiesAlikeEverywhere) {
  struct Exponents {
    std::uint32_t first, count;
  };
  std::int64_t compared = 0;
  for (const Exponents& e : {Exponents{100, 60}, Exponents{40, 26}, Exponents{55, 14}, Exponents{60, 5},
                             Exponents{0, 130}, Exponents{180, 20}, Exponents{0, 256}})
    for (const std::int64_t depth : {2, 5, 12}) {
      constexpr std::int64_t kSize = 72;
      const std::vector<float> got = same_with_and_without_pairs([&](Executor& exec) {
        const Tensor a = of_patterns(exec, {kSize, depth}, 1, e.first, e.count);
        const Tensor b = of_patterns(exec, {depth, kSize}, 2, e.first, e.count);
        Tensor c = exec.empty({kSize, kSize}, DType::float32);
        matmul(exec, a, Transpose::no, b, Transpose::no, c);
        std::vector<float> bits = values<float>(c);
        for (float& x : bits) x = std::isnan(x) ? std::nanf("") : x;  // which NaN is open
        return bits;
      });
      const auto value = [&](std::uint32_t stream, std::int64_t i) {
        return bfloat16_value(pattern(stream, i, e.first, e.count));
      };
      for (std::int64_t i = 0; i < kSize; ++i)
        for (std::int64_t j = 0; j < kSize; ++j, ++compared) {
          const float expected = element_by_contract<BFloat16, float>(
              depth, false, 0, [&](std::int64_t k) { return value(1, i * depth + k); },
              [&](std::int64_t k) { return value(2, k * kSize + j); });
          const float actual = got[static_cast<std::size_t>(i * kSize + j)];
          if (std::isnan(expected) && std::isnan(actual)) continue;
          ASSERT_EQ(std::bit_cast<std::uint32_t>(actual), std::bit_cast<std::uint32_t>(expected))
              << "exponents from " << e.first << " element " << i << ' ' << j << " depth " << depth;
        }
    }
  EXPECT_GT(compared, 100'000);
}

// The smallest normal sum less a little: what rounds up to it again with 24 bits stays, what needs a subnormal's
// coarser rounding for that becomes zero.
TEST(MatmulBFloat16, ComparesWithTheSmallestNormalAfterRounding) {
  constexpr std::int64_t kSize = 32, kDepth = 4;
  const auto a = [](std::int64_t i, std::int64_t k) {
    return k == 0   ? 0x1p-63F
           : k == 2 ? -std::ldexp(1.0F + static_cast<float>(i % 8) / 8, static_cast<int>(-78 + i / 8))
                    : 0;
  };
  const auto b = [](std::int64_t k, std::int64_t j) {
    return k == 0 ? 0x1p-63F : k == 2 ? std::ldexp(1.0F, static_cast<int>(-76 + j % 6)) : 0;
  };
  const std::vector<float> got = same_with_and_without_pairs([&](Executor& exec) {
    const Tensor left =
        make_tensor<BFloat16>(exec, {kSize, kDepth}, [&](auto at) { return a(at / kDepth, at % kDepth); });
    const Tensor right =
        make_tensor<BFloat16>(exec, {kDepth, kSize}, [&](auto at) { return b(at / kSize, at % kSize); });
    Tensor c = exec.empty({kSize, kSize}, DType::float32);
    matmul(exec, left, Transpose::no, right, Transpose::no, c);
    return values<float>(c);
  });
  std::int64_t zeros = 0, kept = 0;
  for (std::int64_t i = 0; i < kSize; ++i)
    for (std::int64_t j = 0; j < kSize; ++j) {
      const float actual = got[static_cast<std::size_t>(i * kSize + j)];
      // Exact in double. A sum below 2⁻¹²⁶ by at most half of 2⁻¹⁵⁰ is rounded up to it.
      const double less = -static_cast<double>(a(i, 2)) * static_cast<double>(b(2, j));
      EXPECT_EQ(actual, less <= 0x1p-151 ? 0x1p-126F : 0.0F) << less;
      (actual == 0 ? zeros : kept) += 1;
    }
  EXPECT_GT(zeros, 100);
  EXPECT_GT(kept, 100);
}

// Sums of chunks are added without flushing: what is subnormal then is rounded as such, beside infinities and NaN.
TEST(MatmulBFloat16, RoundsSubnormalSumsOfChunks) {
  constexpr std::int64_t kRows = 29, kColumns = 77, kDepth = 2 * kMatmulChunk;
  const auto a = [](std::int64_t i, std::int64_t k) {
    return k == 0 ? 0x1p-60F : k == kMatmulChunk ? -0x1p-60F * (1.0F + static_cast<float>(i) / 32) : 0.0F;
  };
  const auto b = [](std::int64_t k, std::int64_t j) {
    if (k != 0 && k != kMatmulChunk) return 0.0F;
    if (j == 40) return HUGE_VALF;  // infinity less infinity
    const float size = j % 3 == 0 ? 0x1p-64F : 0x1p-30F;
    return k == 0 ? size * (1.0F + static_cast<float>(j % 64) / 64) : size;
  };
  const std::vector<float> got = same_with_and_without_pairs([&](Executor& exec) {
    const Tensor left =
        make_tensor<BFloat16>(exec, {kRows, kDepth}, [&](auto at) { return a(at / kDepth, at % kDepth); });
    const Tensor right =
        make_tensor<BFloat16>(exec, {kDepth, kColumns}, [&](auto at) { return b(at / kColumns, at % kColumns); });
    Tensor c = exec.empty({kRows, kColumns}, DType::bfloat16);
    matmul(exec, left, Transpose::no, right, Transpose::no, c);
    std::vector<float> elements = floats(values<BFloat16>(c));
    for (float& x : elements) x = std::isnan(x) ? std::nanf("") : x;
    return elements;
  });
  std::int64_t subnormal = 0, nan = 0;
  for (std::int64_t i = 0; i < kRows; ++i)
    for (std::int64_t j = 0; j < kColumns; ++j) {
      const float actual = got[static_cast<std::size_t>(i * kColumns + j)];
      const float expected = element_by_contract<BFloat16, BFloat16>(
          kDepth, false, 0, [&](std::int64_t k) { return a(i, k); }, [&](std::int64_t k) { return b(k, j); });
      EXPECT_TRUE(std::isnan(expected) ? std::isnan(actual) : same_bits({expected}, {actual})) << i << ' ' << j;
      subnormal += std::fpclassify(expected) == FP_SUBNORMAL;
      nan += std::isnan(expected);
    }
  EXPECT_GT(subnormal, 300);
  EXPECT_EQ(nan, kRows);
}

// Every pattern times one, as float and rounded back.
template <typename T>
void passes_every_pattern(const std::function<float(float)>& expected) {
  constexpr std::int64_t kPatterns = 0x10000;
  same_with_and_without_pairs([&](Executor& exec) {
    Tensor a = exec.empty({kPatterns, 1}, DTypeOf<T>::value), one = exec.empty({1, 1}, DTypeOf<T>::value);
    for (std::int64_t i = 0; i < kPatterns; ++i) a.data<T>()[i] = T::from_bits(static_cast<std::uint16_t>(i));
    one.data<T>()[0] = T(1.0F);
    Tensor wide = exec.empty({kPatterns, 1}, DType::float32), own = exec.empty({kPatterns, 1}, DTypeOf<T>::value);
    matmul(exec, a, Transpose::no, one, Transpose::no, wide);
    matmul(exec, a, Transpose::no, one, Transpose::no, own);
    std::vector<float> result = values<float>(wide);
    for (std::int64_t i = 0; i < kPatterns; ++i) {
      const float want = expected(a.data<T>()[i]), got = wide.data<float>()[i];
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want && std::signbit(got) == std::signbit(want)) << i;
      EXPECT_EQ(own.data<T>()[i].bits, T(got).bits) << i;
      if (std::isnan(got)) result[static_cast<std::size_t>(i)] = std::nanf("");
    }
    return result;
  });
}

// Added to the zero that a sum starts with: −0 becomes 0.
TEST(MatmulBFloat16, PassesEveryPattern) {
  passes_every_pattern<BFloat16>([](float x) { return flushed(x) + 0.0F; });
}
TEST(MatmulFloat16, PassesEveryPattern) {
  passes_every_pattern<Float16>([](float x) { return x + 0.0F; });
}

TEST(MatmulFloat16, OverflowBecomesInfinity) {
  TestExecutor exec;
  const Tensor a = make_tensor<Float16>(exec, {1, 2}, [](std::int64_t) { return 256; });
  for (const auto& [factor, expected] :
       {std::pair{127.0, 65024.0F}, std::pair{128.0, HUGE_VALF}, std::pair{-128.0, -HUGE_VALF}}) {
    const double f = factor;
    const Tensor b = make_tensor<Float16>(exec, {2, 1}, [f](std::int64_t) { return f; });
    Tensor c = exec.empty({1, 1}, DType::float16);
    matmul(exec, a, Transpose::no, b, Transpose::no, c);
    EXPECT_EQ(static_cast<float>(c.data<Float16>()[0]), expected);
  }
}

TEST(MatmulBFloat16, EmptySizesAndMeta) {
  TestExecutor exec;
  for (const Case& p : {Case{0, 5, 4, false, true, false}, Case{5, 0, 4, false, false, false}}) {
    Operands<BFloat16, BFloat16> o(exec, p, 0);
    EXPECT_NO_THROW(o.run(exec, p));
  }
  const Case none{3, 4, 0, false, true, false};
  Operands<BFloat16, BFloat16> zero(exec, none, 1);
  zero.run(exec, none);
  EXPECT_EQ(floats(values<BFloat16>(zero.c)), std::vector<float>(12, 0.0F));
  std::vector<std::int64_t> scratch;
  for (const Device device : {Device::cpu, Device::meta}) {
    TestExecutor two(2, device);
    const Case p{100, 200, 1700, false, true, false};
    Operands<BFloat16, BFloat16> o(two, p, 0);
    o.run(two, p);
    EXPECT_EQ(two.counters().matmul_flops, 2 * 100 * 200 * 1700);
    scratch.push_back(two.allocator().tracker().peak(MemoryKind::scratch));
  }
  EXPECT_GT(scratch[0], 0);
  EXPECT_EQ(scratch[0], scratch[1]);
}

TEST(MatmulBFloat16, RefusesWrongTypes) {
  TestExecutor exec;
  const auto zeros = [&](DType dtype) { return exec.zeros({2, 2}, dtype); };
  const auto multiply = [&](DType a, DType b, DType c, bool accumulate) {
    matmul(exec, zeros(a), Transpose::no, zeros(b), Transpose::no, zeros(c), accumulate);
  };
  const DType f32 = DType::float32, f64 = DType::float64, bf16 = DType::bfloat16, f16 = DType::float16;
  EXPECT_NO_THROW(multiply(bf16, bf16, f32, true));
  EXPECT_THROW(multiply(bf16, bf16, bf16, true), Error);
  EXPECT_THROW(multiply(f16, f16, f16, true), Error);
  EXPECT_THROW(multiply(bf16, f32, f32, false), Error);
  EXPECT_THROW(multiply(bf16, bf16, f16, false), Error);
  EXPECT_THROW(multiply(f32, f32, bf16, false), Error);
  EXPECT_THROW(multiply(bf16, bf16, f64, false), Error);
  EXPECT_THROW(multiply(DType::int32, DType::int32, DType::int32, false), Error);
}

TEST(PairInstruction, IsUsedWhereItIsAllowedAndRoundsAsExpected) {
  EXPECT_FALSE(pair_instruction_reason().empty());
  const bool used = uses_pair_instruction();
  allow_pair_instruction(false);
  EXPECT_FALSE(uses_pair_instruction());
  allow_pair_instruction(true);
  EXPECT_EQ(uses_pair_instruction(), used);
  use_isa("scalar");
  EXPECT_FALSE(uses_pair_instruction());
  use_isa("");
  EXPECT_EQ(used, pair_instruction_reason() == "AVX512_BF16, which rounds as expected");
}

}  // namespace
}  // namespace megatron::kernels
