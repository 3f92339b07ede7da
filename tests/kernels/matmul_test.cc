#include "kernels/matmul.h"

#include "product_case.h"

namespace megatron::kernels {
namespace {

// The contract, in scalar code.
std::vector<float> by_contract(const Case& p) {
  std::vector<float> c;
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      float total = p.accumulate ? random_value(3, i * p.n + j) : 0;
      for (std::int64_t k0 = 0; k0 < p.k; k0 += kMatmulChunk) {
        float chain = 0;
        for (std::int64_t k = k0; k < std::min(p.k, k0 + kMatmulChunk); ++k)
          chain = std::fma(random_value(1, p.transpose_a ? k * p.m + i : i * p.k + k),
                           random_value(2, p.transpose_b ? j * p.k + k : k * p.n + j), chain);
        total = k0 == 0 && !p.accumulate ? chain : total + chain;
      }
      c.push_back(total);
    }
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> result;
  const std::int64_t shapes[][3] = {{1, 1, 1},   {1, 50, 7},    {3, 5, 400},    {14, 32, 384}, {15, 33, 385},
                                    {29, 16, 3}, {64, 100, 70}, {31, 200, 801}, {130, 17, 64}, {7, 70, 1}};
  int index = 0;
  for (const auto& s : shapes)
    for (int layout = 0; layout < 3; ++layout, ++index)
      result.push_back({s[0], s[1], s[2], layout == 2, layout == 0, index % 2 == 1});
  result.push_back({20, 30, 10, true, true, false});
  return result;
}

TEST(Matmul, FollowsTheContractOnEveryIsa) {
  for (const Case& p : cases()) {
    const std::vector<float> expected = by_contract(p);
    for (const std::int64_t padding : {0, 5}) {
      const std::vector<float> got = same_everywhere([&](Executor& exec) {
        Operands<float> o(exec, p, padding);
        o.run(exec, p);
        return values<float>(o.c);
      });
      EXPECT_TRUE(same_bits(expected, got)) << p << " padding " << padding;
    }
  }
}

TEST(Matmul, WritesNothingBesideC) {
  TestExecutor exec(2);
  std::vector<Case> all = cases();
  all.push_back({310, 700, 400, false, true, true});  // large enough for each thread to pack for itself
  for (const Case& p : all) {
    Operands<float> o(exec, p, 5);
    o.run(exec, p);
    const float* data = o.c.data<float>();
    for (std::int64_t i = 0; i < p.m; ++i)
      for (std::int64_t j = p.n; j < p.n + 5; ++j) ASSERT_EQ(data[i * (p.n + 5) + j], -77) << p << " row " << i;
  }
}

// A dense copy of a view's elements in a tensor with `padding` elements between rows.
Tensor duplicate(Executor& exec, const Tensor& from, std::int64_t padding) {
  const std::vector<float> elements = values<float>(from);
  return make_tensor<float>(
      exec, from.shape(), [&](std::int64_t i) { return static_cast<double>(elements[static_cast<std::size_t>(i)]); },
      padding);
}

// Numbers in [0, below), the same in every run.
class Draw {
 public:
  std::int64_t operator()(std::int64_t below) {
    return static_cast<std::int64_t>(philox4x32({1, 2}, {count_++, 0, 0, 0})[0] % static_cast<std::uint32_t>(below));
  }

 private:
  std::uint32_t count_ = 0;
};

// Computes a random box of C from slices of A and B into a tensor of its own and compares with that box of `whole`.
void compare_slice(Executor& exec, const Case& p, const Operands<float>& inputs, const Tensor& whole,
                   std::int64_t width, Draw& draw) {
  const std::int64_t heights[] = {1, 2, 6, 14, 15, 100};
  const std::int64_t rows = std::min(p.m, heights[draw(6)]), columns = std::min(p.n, width);
  const std::int64_t row = draw(p.m - rows + 1), column = draw(p.n - columns + 1);
  const auto box = [&](const Tensor& t) { return t.slice(0, row, row + rows).slice(1, column, column + columns); };
  Tensor c = duplicate(exec, box(inputs.c), 3);
  matmul(exec, inputs.a.slice(p.transpose_a ? 1 : 0, row, row + rows), flag(p.transpose_a),
         inputs.b.slice(p.transpose_b ? 0 : 1, column, column + columns), flag(p.transpose_b), c, p.accumulate);
  EXPECT_TRUE(same_bits(values<float>(box(whole)), values<float>(c)))
      << p << " rows " << row << '+' << rows << " columns " << column << '+' << columns << " on " << current_isa()
      << " with " << exec.num_threads() << " threads";
}

// One element's bits depend on its row of A, its column of B and K alone: not on the slice, the threads, the tiles.
TEST(Matmul, matmul_slice_invariance) {
  const Case shapes[] = {{150, 450, 900, false, true, false},
                         {60, 1300, 500, false, false, true},
                         {160, 210, 390, true, false, true},
                         {1100, 40, 70, true, false, false},
                         {1030, 70, 390, false, true, true},
                         {30, 100, 3200, false, true, false},
                         // large enough for each thread to pack for itself
                         {300, 710, 800, false, true, false},
                         {310, 700, 400, false, false, true},
                         {2100, 690, 390, true, false, true}};
  Draw draw;
  for (const Case& p : shapes) {
    TestExecutor first(1);
    const Operands<float> inputs(first, p, 3);
    std::vector<float> bits;
    for (const std::string& isa : supported_isas()) {
      if (isa == "scalar") continue;  // held to the contract by the smaller cases above; too slow for these
      use_isa(isa);
      for (int threads = 1; threads <= 4; ++threads) {
        TestExecutor exec(threads);
        Tensor whole = duplicate(exec, inputs.c, 1);
        matmul(exec, inputs.a, flag(p.transpose_a), inputs.b, flag(p.transpose_b), whole, p.accumulate);
        if (bits.empty()) bits = values<float>(whole);
        EXPECT_TRUE(same_bits(bits, values<float>(whole))) << p << " on " << isa << " with " << threads << " threads";
        for (const std::int64_t width : {1, 3, 7, 17, 33, 128}) compare_slice(exec, p, inputs, whole, width, draw);
      }
    }
    use_isa("");
  }
}

TEST(Matmul, IsCloseToTheOracle) {
  for (const Case& p : {Case{40, 70, 768, false, true, false}, Case{40, 70, 3072, true, false, true}}) {
    TestExecutor exec;
    Operands<float> single(exec, p, 0);
    Operands<double> oracle(exec, p, 0);
    single.run(exec, p);
    oracle.run(exec, p);
    EXPECT_LT(relative_rms(values<float>(single.c), values<double>(oracle.c)), 5e-7) << p;
  }
}

TEST(Matmul, CountsTheSameOnMeta) {
  for (const Device device : {Device::cpu, Device::meta}) {
    TestExecutor exec(2, device);
    const Case p{10, 20, 30, false, true, false};
    Operands<float> o(exec, p, 0);
    o.run(exec, p);
    EXPECT_EQ(exec.counters().matmul_flops, 2 * 10 * 20 * 30);
    EXPECT_EQ(exec.allocator().tracker().peak(MemoryKind::scratch) > 0, true);
  }
}

TEST(Matmul, EmptySizes) {
  TestExecutor exec;
  for (const Case& p : {Case{0, 5, 4, false, true, false}, Case{5, 0, 4, false, false, false}}) {
    Operands<float> o(exec, p, 0);
    EXPECT_NO_THROW(o.run(exec, p));
  }
  const Case p{3, 4, 0, false, true, false};
  Operands<float> zero(exec, p, 1);
  zero.run(exec, p);
  EXPECT_EQ(values<float>(zero.c), std::vector<float>(12, 0.0F));
}

TEST(Matmul, RefusesWrongShapes) {
  TestExecutor exec;
  Tensor a = exec.zeros({2, 3}, DType::float32), b = exec.zeros({4, 3}, DType::float32);
  Tensor c = exec.zeros({2, 4}, DType::float32), c64 = exec.zeros({2, 4}, DType::float64);
  EXPECT_THROW(matmul(exec, a, Transpose::no, b, Transpose::no, c), Error);
  EXPECT_THROW(matmul(exec, a, Transpose::yes, b, Transpose::yes, c), Error);
  EXPECT_THROW(matmul(exec, a, Transpose::no, b, Transpose::yes, c64), Error);
  EXPECT_NO_THROW(matmul(exec, a, Transpose::no, b, Transpose::yes, c));
}

}  // namespace
}  // namespace megatron::kernels
