#include "data/random_state.h"

#include <numeric>

#include "base/check.h"
#include "data/index_array.h"
#include "golden.h"

namespace megatron::data {
namespace {

using testing::Ints;
using testing::Json;

Ints shuffled(RandomState& random, std::int64_t n) {
  IndexArray values(n, n);
  for (std::int64_t i = 0; i < n; ++i) values.set(i, i);
  random.shuffle(values, 0, n);
  Ints out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(values[i]);
  return out;
}

TEST(RandomState, ShufflesAsNumpy) {
  RandomState random(1234);
  EXPECT_EQ(shuffled(random, 10), (Ints{7, 2, 9, 1, 0, 8, 4, 5, 6, 3}));
  RandomState continued(1234);
  EXPECT_EQ(shuffled(continued, 5), (Ints{4, 0, 1, 2, 3}));
  EXPECT_EQ(shuffled(continued, 7), (Ints{5, 2, 6, 3, 1, 0, 4}));
}

TEST(RandomState, FirstWords) {
  RandomState random(1234);
  EXPECT_EQ(random.bounded(0xffffffffU), 822569775U);
  EXPECT_EQ(random.bounded(0xffffffffU), 2137449171U);
  RandomState zero(0);
  EXPECT_EQ(zero.bounded(0xffffffffU), 2357136044U);
}

TEST(RandomState, RefusesSeedsThatNumpyRefuses) { EXPECT_THROW(RandomState(1ULL << 32), ConfigError); }

TEST(RandomState, AllReferenceRecords) {
  const auto path = testing::dataset_dir() / "shuffle.json";
  MEGATRON_REQUIRE_REFERENCE(path);
  for (const Json& record : testing::load_json(path)) {
    RandomState random(record["seed"].get<std::uint64_t>());
    for (const Json& then : record["then"])
      testing::expect_array(shuffled(random, then["shape"][0].get<std::int64_t>()), then, record["seed"].dump());
  }
}

}  // namespace
}  // namespace megatron::data
