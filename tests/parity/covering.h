// Pairwise covering sets: few rows of factor values in which every pair of values of two factors occurs that can occur.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <set>
#include <tuple>
#include <vector>

namespace megatron::parity {

/// One value number for each factor.
using Row = std::vector<int>;
/// (factor, value, later factor, its value)
using ValuePair = std::tuple<int, int, int, int>;

inline std::set<ValuePair> pairs_of(const Row& row) {
  std::set<ValuePair> pairs;
  for (int f = 0; f < static_cast<int>(row.size()); ++f)
    for (int g = f + 1; g < static_cast<int>(row.size()); ++g)
      pairs.insert({f, row[static_cast<std::size_t>(f)], g, row[static_cast<std::size_t>(g)]});
  return pairs;
}

/// All rows of factors with `sizes` values each, the last factor fastest, that `feasible` accepts.
inline std::vector<Row> feasible_rows(const std::vector<int>& sizes, const std::function<bool(const Row&)>& feasible) {
  std::vector<Row> rows;
  Row row(sizes.size(), 0);
  for (;;) {
    if (feasible(row)) rows.push_back(row);
    std::size_t f = row.size();
    while (f > 0 && ++row[f - 1] == sizes[f - 1]) row[--f] = 0;
    if (f == 0) return rows;
  }
}

/// Greedy: as long as a pair of some feasible row is missing, take the row with the most missing pairs; of equals the
/// cheapest, of these the first. No chance is involved: equal arguments give equal sets.
inline std::vector<Row> covering_set(const std::vector<Row>& rows, const std::function<int(const Row&)>& cost) {
  std::vector<std::vector<std::size_t>> pairs_of_row;  // numbers of pairs
  std::vector<ValuePair> all;
  {
    std::set<ValuePair> sorted;
    for (const Row& row : rows) sorted.merge(pairs_of(row));
    all.assign(sorted.begin(), sorted.end());
  }
  for (const Row& row : rows) {
    std::vector<std::size_t> numbers;
    for (const ValuePair& pair : pairs_of(row))
      numbers.push_back(static_cast<std::size_t>(std::lower_bound(all.begin(), all.end(), pair) - all.begin()));
    pairs_of_row.push_back(std::move(numbers));
  }
  std::vector<char> missing(all.size(), 1);
  std::size_t left = all.size();
  std::vector<Row> chosen;
  while (left > 0) {
    std::size_t best = 0, best_gain = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::size_t gain = 0;
      for (const std::size_t number : pairs_of_row[r]) gain += static_cast<std::size_t>(missing[number]);
      if (gain > best_gain || (gain == best_gain && gain > 0 && cost(rows[r]) < cost(rows[best]))) {
        best = r;
        best_gain = gain;
      }
    }
    for (const std::size_t number : pairs_of_row[best]) missing[number] = 0;
    left -= best_gain;
    chosen.push_back(rows[best]);
  }
  return chosen;
}

}  // namespace megatron::parity
