#include "mesh/mappings.h"

#include <gtest/gtest.h>

#include "support/run_ranks.h"

namespace megatron {
namespace {

using testing::make_parallel;

constexpr std::int64_t kTokens = 6, kHidden = 12;

/// Element (t, h) of rank r's matrix: a number from which all three can be read.
double element(int r, std::int64_t t, std::int64_t h) {
  return 10000.0 * r + 100.0 * static_cast<double>(t) + static_cast<double>(h);
}
/// Its sum over n ranks.
double summed(int n, std::int64_t t, std::int64_t h) { return n * element(0, t, h) + 10000.0 * (n * (n - 1) / 2); }

/// Rank r's matrix; `same`: every rank has rank 0's.
Tensor matrix(mesh::Rank& rank, std::int64_t rows, std::int64_t cols, bool same = false) {
  Tensor tensor = rank.exec.empty({rows, cols}, DType::float64);
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t h = 0; h < cols; ++h)
      tensor.data<double>()[t * cols + h] = element(same ? 0 : rank.mesh.tp.rank(), t, h);
  return tensor;
}

double at(const Tensor& x, std::int64_t t, std::int64_t h) { return x.data<double>()[t * x.strides()[0] + h]; }

class Mappings : public ::testing::TestWithParam<int> {};

TEST_P(Mappings, GatherTokens) {
  const int n = GetParam();
  testing::run_mesh(make_parallel(n), [n](mesh::Rank& rank) {
    const Tensor y = mesh::gather_along_tokens(rank.exec, rank.mesh.tp, matrix(rank, kTokens, kHidden), "x").wait();
    ASSERT_EQ(y.shape(), (Shape{n * kTokens, kHidden}));
    for (std::int64_t t = 0; t < n * kTokens; ++t)
      for (std::int64_t h = 0; h < kHidden; ++h)
        ASSERT_EQ(at(y, t, h), element(static_cast<int>(t / kTokens), t % kTokens, h));
  });
}

TEST_P(Mappings, ReduceScatterTokens) {
  const int n = GetParam();
  testing::run_mesh(make_parallel(n), [n](mesh::Rank& rank) {
    const Tensor y =
        mesh::reduce_scatter_along_tokens(rank.exec, rank.mesh.tp, matrix(rank, n * kTokens, kHidden), "x").wait();
    ASSERT_EQ(y.shape(), (Shape{kTokens, kHidden}));
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t h = 0; h < kHidden; ++h)
        ASSERT_EQ(at(y, t, h), summed(n, t + rank.mesh.tp.rank() * kTokens, h));
  });
}

TEST_P(Mappings, ScatterTokensIsASharedPart) {
  const int n = GetParam();
  testing::run_mesh(make_parallel(n), [n](mesh::Rank& rank) {
    const Tensor x = matrix(rank, n * kTokens, kHidden, /*same=*/true);
    const Tensor y = mesh::scatter_along_tokens(rank.mesh.tp, x);
    ASSERT_EQ(y.shape(), (Shape{kTokens, kHidden}));
    EXPECT_EQ(y.storage(), x.storage());
    EXPECT_EQ(at(y, 1, 2), element(0, rank.mesh.tp.rank() * kTokens + 1, 2));
    EXPECT_TRUE(rank.context.traffic().bytes.empty());
  });
}

TEST_P(Mappings, GatherHidden) {
  const int n = GetParam();
  testing::run_mesh(make_parallel(n), [n](mesh::Rank& rank) {
    const Tensor y = mesh::gather_along_hidden(rank.exec, rank.mesh.tp, matrix(rank, kTokens, kHidden), "x");
    ASSERT_EQ(y.shape(), (Shape{kTokens, n * kHidden}));
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t h = 0; h < n * kHidden; ++h)
        ASSERT_EQ(at(y, t, h), element(static_cast<int>(h / kHidden), t, h % kHidden));
  });
}

TEST_P(Mappings, ScatterHidden) {
  const int n = GetParam();
  testing::run_mesh(make_parallel(n), [n](mesh::Rank& rank) {
    const Tensor y =
        mesh::scatter_along_hidden(rank.exec, rank.mesh.tp, matrix(rank, kTokens, n * kHidden, /*same=*/true));
    ASSERT_EQ(y.shape(), (Shape{kTokens, kHidden}));
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t h = 0; h < kHidden; ++h)
        ASSERT_EQ(at(y, t, h), element(0, t, rank.mesh.tp.rank() * kHidden + h));
    EXPECT_TRUE(rank.context.traffic().bytes.empty());
  });
}

TEST_P(Mappings, ReduceScatterHidden) {
  const int n = GetParam();
  testing::run_mesh(make_parallel(n), [n](mesh::Rank& rank) {
    const Tensor y =
        mesh::reduce_scatter_along_hidden(rank.exec, rank.mesh.tp, matrix(rank, kTokens, n * kHidden), "x");
    ASSERT_EQ(y.shape(), (Shape{kTokens, kHidden}));
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t h = 0; h < kHidden; ++h)
        ASSERT_EQ(at(y, t, h), summed(n, t, rank.mesh.tp.rank() * kHidden + h));
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Mappings, ::testing::Values(1, 2, 3, 4, 8));

TEST(MappingsErrors, RefuseWhatDoesNotDivide) {
  EXPECT_THROW(testing::run_mesh(make_parallel(2),
                                 [](mesh::Rank& rank) {
                                   mesh::reduce_scatter_along_tokens(rank.exec, rank.mesh.tp, matrix(rank, 5, 4), "x");
                                 }),
               Error);
}

}  // namespace
}  // namespace megatron
