#include "spec/sharding.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <functional>
#include <vector>

#include "base/check.h"

namespace megatron::spec {
namespace {

using Maker = std::function<Sharding(int rank, int size)>;

/// Counts for each logical element how often it is held and how often it is owned over all ranks; local rows of the
/// pieces must not overlap.
void expect_exact_cover(const Maker& make, int size, int holders) {
  std::vector<int> held, owned;
  for (int rank = 0; rank < size; ++rank) {
    const Sharding s = make(rank, size);
    held.resize(static_cast<std::size_t>(s.numel()));
    owned.resize(static_cast<std::size_t>(s.numel()));
    std::vector<int> local(static_cast<std::size_t>(s.local_rows));
    for (const Piece& piece : s.pieces) {
      for (std::int64_t r = 0; r < piece.global.rows; ++r) {
        ++local.at(static_cast<std::size_t>(piece.local_row + r));
        for (std::int64_t c = 0; c < piece.global.cols; ++c) {
          const auto at = static_cast<std::size_t>((piece.global.row + r) * s.cols + piece.global.col + c);
          ++held.at(at);
          if (piece.owned) ++owned.at(at);
        }
      }
    }
    for (int n : local) EXPECT_LE(n, 1);
  }
  for (int n : owned) EXPECT_EQ(n, 1);
  if (holders > 0) {
    for (int n : held) EXPECT_EQ(n, holders);
  }
}

TEST(Sharding, EveryElementIsOwnedOnce) {
  for (int size : {1, 2, 4, 8}) {
    expect_exact_cover([](int r, int) { return replicated(1, 7, 1, r); }, size, size);
    expect_exact_cover([](int r, int n) { return row_shard(2, 37, 48, 5, r, n); }, size, 1);
    expect_exact_cover([](int r, int n) { return column_shard(3, 16, r, n); }, size, 1);
    expect_exact_cover([](int r, int n) { return gated_shard(2, 24, 3, r, n); }, size, 1);
    expect_exact_cover([](int r, int n) { return qkv_shard(2, 8, 8, 2, 3, r, n); }, size, 1);
    for (std::int64_t groups : {1, 2, 4, 8})
      expect_exact_cover([groups](int r, int n) { return qkv_shard(2, 8, groups, 2, 3, r, n); }, size, 0);
  }
  for (std::int64_t groups : {1, 3})
    expect_exact_cover([groups](int r, int n) { return qkv_shard(1, 24, groups, 8, 1, r, n); }, 3, 0);
}

TEST(Sharding, VocabularyPaddingIsNobodys) {
  // 37 rows padded to 48 over 4 ranks of 12: the last rank holds one row and 11 of padding.
  const Sharding last = row_shard(2, 37, 48, 6, 3, 4);
  ASSERT_EQ(last.pieces.size(), 1u);
  EXPECT_EQ(last.pieces[0].global, (Box{36, 0, 1, 6}));
  EXPECT_EQ(last.local_rows, 12);
  EXPECT_TRUE(row_shard(2, 10, 48, 6, 2, 4).pieces.empty());
}

TEST(Sharding, FewerGroupsThanRanksSplitTheQueriesAndShareKeyAndValue) {
  // 4 heads, 2 groups of size 2: rows per group = 2·2 query + 2 key + 2 value = 8. Rank 3: group 1, second query head.
  const Sharding s = qkv_shard(2, 4, 2, 2, 5, 3, 4);
  EXPECT_EQ(s.rows, 16);
  EXPECT_EQ(s.local_rows, 6);
  ASSERT_EQ(s.pieces.size(), 2u);
  EXPECT_EQ(s.pieces[0].global, (Box{10, 0, 2, 5}));
  EXPECT_EQ(s.pieces[1].global, (Box{12, 0, 4, 5}));
  EXPECT_EQ(s.pieces[1].local_row, 2);
  EXPECT_FALSE(s.pieces[1].owned);
  EXPECT_TRUE(qkv_shard(2, 4, 2, 2, 5, 2, 4).pieces[1].owned);
}

TEST(Sharding, GatedShardHoldsGateThenUp) {
  const Sharding s = gated_shard(2, 6, 4, 1, 2);
  EXPECT_EQ(s.rows, 12);
  EXPECT_EQ(s.pieces[0].global, (Box{3, 0, 3, 4}));
  EXPECT_EQ(s.pieces[1].global, (Box{9, 0, 3, 4}));
  EXPECT_EQ(s.pieces[1].local_row, 3);
}

TEST(Sharding, ShapeText) {
  EXPECT_EQ(replicated(1, 768, 1, 0).global_shape_text(), "[768]");
  EXPECT_EQ(column_shard(768, 3072, 0, 2).global_shape_text(), "[768, 3072]");
}

TEST(Sharding, ImpossibleCutsAreRefused) {
  EXPECT_THROW(column_shard(4, 6, 0, 4), Error);
  EXPECT_THROW(qkv_shard(2, 6, 3, 2, 4, 0, 2), Error);  // 3 groups, 2 ranks
  EXPECT_THROW(row_shard(2, 4, 4, 1, 2, 2), Error);     // rank 2 of 2
}

/// Every element of a flat range is in one piece, at the place that the shard's own pieces give it.
TEST(Sharding, FlatRangesBecomeBoxes) {
  const Sharding shards[] = {qkv_shard(2, 4, 2, 3, 5, 1, 4), gated_shard(2, 6, 7, 1, 2), column_shard(5, 12, 1, 3),
                             row_shard(2, 10, 12, 3, 3, 4), replicated(1, 17, 1, 1)};
  for (const Sharding& s : shards)
    for (std::int64_t begin = 0; begin < s.local_numel(); begin += 3)
      for (std::int64_t end = begin; end <= s.local_numel(); end += 4) {
        std::int64_t covered = 0;
        for (const FlatPiece& piece : pieces_of_range(s, begin, end)) {
          covered += piece.global.numel();
          EXPECT_TRUE(piece.local_begin >= begin && piece.local_end() <= end);
          const std::int64_t row = piece.local_begin / s.local_cols, col = piece.local_begin % s.local_cols;
          EXPECT_TRUE(piece.global.rows == 1 || (col == 0 && piece.global.cols == s.local_cols));
          for (const Piece& whole : s.pieces) {
            if (row < whole.local_row || row >= whole.local_row + whole.global.rows) continue;
            EXPECT_EQ(piece.global.row, whole.global.row + row - whole.local_row);
            EXPECT_EQ(piece.global.col, whole.global.col + col);
            EXPECT_EQ(piece.owned, whole.owned);
          }
        }
        std::int64_t expected = 0;
        for (const Piece& whole : s.pieces)
          expected += std::max<std::int64_t>(0, std::min(end, (whole.local_row + whole.global.rows) * s.local_cols) -
                                                    std::max(begin, whole.local_row * s.local_cols));
        EXPECT_EQ(covered, expected);
      }
}

}  // namespace
}  // namespace megatron::spec
