// The local world: conformance of all operations, disagreements, dropped and outstanding operations, ends of all kinds.
#include "comm/world.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <numeric>

#include "comm/conformance.h"

namespace megatron::comm {
namespace {

using conformance::options_of;

class LocalConformance : public testing::TestWithParam<int> {};

TEST_P(LocalConformance, AllOperations) {
  std::atomic<int> ranks{0};
  create_local_world(options_of(GetParam()))->run([&](RankContext& rank) {
    conformance::run_all(rank, 40000);
    ++ranks;
  });
  EXPECT_EQ(ranks.load(), GetParam());
}

class PerturbedConformance : public testing::TestWithParam<int> {};

TEST_P(PerturbedConformance, AllOperations) {
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    WorldOptions options = options_of(GetParam());
    options.perturb_seed = seed;
    std::atomic<int> ranks{0};
    create_local_world(options)->run([&](RankContext& rank) {
      conformance::run_all(rank, 2000);
      ++ranks;
    });
    EXPECT_EQ(ranks.load(), GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LocalConformance, testing::Values(1, 2, 3, 4, 5, 8));
INSTANTIATE_TEST_SUITE_P(Sizes, PerturbedConformance, testing::Values(2, 3, 5));

TEST(Conformance, ItsSumsDependOnTheOrder) {
  // Otherwise the comparison of bits would prove nothing.
  const std::vector<int> members = {0, 1, 2, 3, 4};
  int different = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    float in_sequence = 0;
    for (const int m : members) in_sequence += conformance::value<float>(m, i, 1);
    different += in_sequence != conformance::expected_sum<float>(members, i, 1);
  }
  EXPECT_GT(different, 100);
}

// Runs `fn` on a world of n ranks that must fail; returns the message of the error that run() throws.
std::string failure_of(int n, const std::function<void(RankContext&, Communicator&, tensor::Allocator&)>& fn) {
  const auto world = create_local_world(options_of(n));
  std::vector<int> members(static_cast<std::size_t>(n));
  std::iota(members.begin(), members.end(), 0);
  try {
    world->run([&](RankContext& rank) {
      const auto allocator = tensor::Allocator::create(Device::cpu);
      fn(rank, *rank.create_group("dp", members), *allocator);
    });
  } catch (const CommError& e) {
    EXPECT_THROW(world->run([](RankContext&) {}), Error) << "a world is dead after an abort";
    return e.what();
  }
  return "no error";
}

Tensor floats(tensor::Allocator& allocator, const Shape& shape) {
  return Tensor::zeros(allocator, shape, DType::float32, MemoryKind::communication);
}

TEST(Disagreement, OperationDtypeCountAndLabel) {
  const std::string operation = failure_of(3, [](RankContext& rank, Communicator& group, tensor::Allocator& a) {
    if (rank.rank() == 2)
      group.broadcast(floats(a, {4}), 0, "x").wait();
    else
      group.all_reduce(floats(a, {4}), ReduceOp::sum, "x").wait();
  });
  EXPECT_NE(operation.find("group dp"), std::string::npos) << operation;
  EXPECT_NE(operation.find("rank 2 posted broadcast float32 [4] from 0 \"x\""), std::string::npos) << operation;
  EXPECT_NE(operation.find("posted all_reduce float32 [4] \"x\""), std::string::npos) << operation;

  const std::string dtype = failure_of(2, [](RankContext& rank, Communicator& group, tensor::Allocator& a) {
    const DType type = rank.rank() == 0 ? DType::float32 : DType::int64;
    group.all_reduce(Tensor::zeros(a, {4}, type, MemoryKind::data), ReduceOp::sum, "x").wait();
  });
  EXPECT_NE(dtype.find("rank 0 posted all_reduce float32 [4]"), std::string::npos) << dtype;
  EXPECT_NE(dtype.find("rank 1 posted all_reduce int64 [4]"), std::string::npos) << dtype;

  const std::string count = failure_of(2, [](RankContext& rank, Communicator& group, tensor::Allocator& a) {
    const std::vector<std::int64_t> rows = {1, rank.rank() + 1};
    group.all_gather(floats(a, {rank.rank() + 1, 6}), rows, floats(a, {rank.rank() + 2, 6}), "x").wait();
  });
  EXPECT_NE(count.find("[1 1 | 6]"), std::string::npos) << count;
  EXPECT_NE(count.find("[1 2 | 6]"), std::string::npos) << count;

  const std::string label = failure_of(2, [](RankContext& rank, Communicator& group, tensor::Allocator&) {
    group.barrier(rank.rank() == 0 ? "one" : "two");
  });
  EXPECT_NE(label.find("\"one\""), std::string::npos) << label;
  EXPECT_NE(label.find("\"two\""), std::string::npos) << label;
}

TEST(Disagreement, ReduceOpRootAndMessages) {
  const std::string op = failure_of(2, [](RankContext& rank, Communicator& group, tensor::Allocator& a) {
    group.all_reduce(floats(a, {4}), rank.rank() == 0 ? ReduceOp::sum : ReduceOp::max, "x").wait();
  });
  EXPECT_NE(op.find("all_reduce max"), std::string::npos) << op;
  const std::string root = failure_of(2, [](RankContext& rank, Communicator& group, tensor::Allocator& a) {
    group.broadcast(floats(a, {4}), rank.rank(), "x").wait();
  });
  EXPECT_NE(root.find("from 0"), std::string::npos) << root;
  EXPECT_NE(root.find("from 1"), std::string::npos) << root;
  for (const bool sender_first : {true, false}) {
    const std::string message = failure_of(2, [&](RankContext& rank, Communicator& group, tensor::Allocator& a) {
      // Whoever is second posts after the barrier.
      const bool sender = rank.rank() == 0;
      if (sender != sender_first) group.barrier("order");
      Pending<Tensor> pending =
          sender ? group.send(floats(a, {4}), 1, "activation") : group.receive(floats(a, {5}), 0, "activation");
      if (sender == sender_first) group.barrier("order");
      pending.wait();
    });
    EXPECT_NE(message.find("rank 0 posted message float32 [4] \"activation\""), std::string::npos) << message;
    EXPECT_NE(message.find("rank 1 posted message float32 [5] \"activation\""), std::string::npos) << message;
  }
}

TEST(Disagreement, RowsOfAllToAll) {
  const std::string message = failure_of(2, [](RankContext& rank, Communicator& group, tensor::Allocator& a) {
    const std::vector<std::int64_t> sent = {1, 1};
    const std::vector<std::int64_t> received = rank.rank() == 0 ? std::vector<std::int64_t>{1, 2} : sent;
    group.all_to_all(floats(a, {2, 3}), sent, received, floats(a, {received[0] + received[1], 3}), "dispatch").wait();
  });
  EXPECT_NE(message.find("rank 1 sends 1 rows to rank 0, which expects 2"), std::string::npos) << message;
}

TEST(Failure, RankThatEndsEarlyIsNamed) {
  const std::string collective = failure_of(3, [](RankContext& rank, Communicator& group, tensor::Allocator& a) {
    if (rank.rank() != 1) group.all_reduce(floats(a, {4}), ReduceOp::sum, "grads").wait();
  });
  EXPECT_NE(collective.find("rank 1 has ended without it"), std::string::npos) << collective;
  const std::string receive = failure_of(2, [](RankContext& rank, Communicator& group, tensor::Allocator& a) {
    if (rank.rank() == 0) group.receive(floats(a, {4}), 1, "activation").wait();
  });
  EXPECT_NE(receive.find("rank 1 has ended without it"), std::string::npos) << receive;
}

TEST(Failure, TheFirstErrorObjectComesOut) {
  struct Special : Error {
    using Error::Error;
    int payload = 42;
  };
  const auto world = create_local_world(options_of(4));
  std::atomic<int> told{0};
  int payload = 0;
  try {
    world->run([&](RankContext& rank) {
      const auto group = rank.create_group("tp", {0, 1, 2, 3});
      group->barrier("start");
      if (rank.rank() == 2) throw Special("boom");
      try {
        group->barrier("never");
      } catch (const CommError& e) {
        EXPECT_NE(std::string(e.what()).find("because of rank 2, after barrier #0 \"start\" in tp: boom"),
                  std::string::npos)
            << e.what();
        ++told;
        throw;
      }
    });
  } catch (const Special& e) {
    payload = e.payload;
  }
  EXPECT_EQ(payload, 42);
  EXPECT_EQ(told.load(), 3);
}

TEST(Failure, OutstandingOperationsAreLeftSafely) {
  // One rank throws while it and the others have large operations under way; everything is freed on its own thread.
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    WorldOptions options = options_of(4);
    options.perturb_seed = seed;
    EXPECT_THROW(create_local_world(options)->run([&](RankContext& rank) {
      const auto a = tensor::Allocator::create(Device::cpu);
      const auto group = rank.create_group("tp", {0, 1, 2, 3});
      std::vector<Pending<Tensor>> pending;
      for (int i = 0; i < 6; ++i) {
        pending.push_back(group->all_reduce(floats(*a, {100000}), ReduceOp::sum, "x"));
        pending.push_back(group->send(floats(*a, {1000}), (rank.rank() + 1) % 4, "m"));
        pending.push_back(group->receive(floats(*a, {1000}), (rank.rank() + 3) % 4, "m"));
        if (rank.rank() == 3 && i == static_cast<int>(seed) % 6) throw Error("boom");
        if (i % 2 == 1) pending[static_cast<std::size_t>(3 * i)].wait();
      }
    }),
                 Error);
  }
}

TEST(Failure, AnErrorThatIsCaughtInsideHarmsNobody) {
  // A Pending destroyed while an exception passes does not wait; the operation still completes for the others.
  std::atomic<int> right{0};
  create_local_world(options_of(2))->run([&](RankContext& rank) {
    const auto a = tensor::Allocator::create(Device::cpu);
    const auto group = rank.create_group("tp", {0, 1});
    Tensor t = conformance::make<float>(*a, {50000}, rank.rank(), 0, 3);
    try {
      auto pending = group->all_reduce(t, ReduceOp::sum, "x");
      if (rank.rank() == 0) throw IoError("inside");
      t = pending.wait();
    } catch (const IoError&) {
    }
    group->barrier("after");
    if (rank.rank() == 1 && t.data<float>()[7] == conformance::expected_sum<float>({0, 1}, 7, 3)) ++right;
  });
  EXPECT_EQ(right.load(), 1);
}

TEST(LocalWorld, ReleasesMemoryOnTheOwnRank) {
  std::atomic<std::int64_t> left{0};
  create_local_world(options_of(3))->run([&](RankContext& rank) {
    const auto a = tensor::Allocator::create(Device::cpu);
    const auto group = rank.create_group("tp", {0, 1, 2});
    for (int i = 0; i < 20; ++i) {
      group->all_reduce(floats(*a, {1000}), ReduceOp::sum, "x").wait();
      { group->send(floats(*a, {1000}), (rank.rank() + 1) % 3, "m"); }
      group->receive(floats(*a, {1000}), (rank.rank() + 2) % 3, "m").wait();
      group->barrier("step");
    }
    group->barrier("sweep");
    left += a->tracker().live_total();
  });
  EXPECT_EQ(left.load(), 0);
}

TEST(LocalWorld, MetaTensorsMoveNothing) {
  std::atomic<int> ranks{0};
  create_local_world(options_of(2))->run([&](RankContext& rank) {
    const auto a = tensor::Allocator::create(Device::meta);
    const auto group = rank.create_group("tp", {0, 1});
    const auto make = [&](const Shape& shape) {
      return Tensor::empty(*a, shape, DType::float32, MemoryKind::activation);
    };
    group->all_reduce(make({100000}), ReduceOp::sum, "x").wait();
    group->all_gather(make({1, 50}), {1, 1}, make({2, 50}), "x").wait();
    if (rank.rank() == 0) group->send(make({9}), 1, "m").wait();
    if (rank.rank() == 1) group->receive(make({9}), 0, "m").wait();
    ++ranks;
  });
  EXPECT_EQ(ranks.load(), 2);
}

TEST(LocalWorld, RunsTwice) {
  const auto world = create_local_world(options_of(2));
  std::atomic<int> runs{0};
  for (int i = 0; i < 2; ++i)
    world->run([&](RankContext& rank) {
      rank.create_group("tp", {0, 1})->barrier("x");
      ++runs;
    });
  EXPECT_EQ(runs.load(), 4);
  EXPECT_FALSE(world->failure_reported());
}

TEST(LocalWorld, WrongGroupsAreRefused) {
  EXPECT_THROW(create_local_world(options_of(2))->run([](RankContext& rank) {
    rank.create_group("tp", {1, 0});
  }),
               Error);
  EXPECT_THROW(create_local_world(options_of(2))->run([](RankContext& rank) {
    rank.create_group("tp", {0, 2});
  }),
               Error);
  EXPECT_THROW(
      create_local_world(options_of(2))->run([](RankContext& rank) { rank.create_group("tp", {1 - rank.rank()}); }),
      Error);
}

TEST(NullWorld, CountsWhatTheLocalWorldCounts) {
  const auto step = [](RankContext& rank, tensor::Allocator& a) {
    const auto tp = rank.create_group("tp", rank.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3});
    const auto world = rank.create_group("world", {0, 1, 2, 3});
    const auto alone = rank.create_group("cp", {rank.rank()});
    const auto floats_of = [&](const Shape& shape) {
      return Tensor::empty(a, shape, DType::float32, MemoryKind::communication);
    };
    const std::vector<std::int64_t> rows = {3, 0, 1, 5}, fours = {4, 4, 4, 4};
    const std::int64_t own = rows[static_cast<std::size_t>(rank.rank())];
    tp->all_reduce(floats_of({7}), ReduceOp::sum, "a").wait();
    world->reduce_scatter(floats_of({9, 5}), rows, floats_of({own, 5}), "b").wait();
    world->all_gather(floats_of({own, 5}), rows, floats_of({9, 5}), "c").wait();
    world->all_to_all(floats_of({16, 2}), fours, fours, floats_of({16, 2}), "d").wait();
    world->broadcast(floats_of({11}), 2, "e").wait();
    alone->all_reduce(floats_of({7}), ReduceOp::sum, "f").wait();
    if (rank.rank() == 0) tp->send(floats_of({8}), 1, "g").wait();
    if (rank.rank() == 1) tp->receive(floats_of({8}), 0, "g").wait();
    world->barrier("h");
  };
  std::vector<TrafficCounters> local(4);
  create_local_world(options_of(4))->run([&](RankContext& rank) {
    const auto a = tensor::Allocator::create(Device::cpu);
    step(rank, *a);
    local[static_cast<std::size_t>(rank.rank())] = rank.traffic();
  });
  for (int r = 0; r < 4; ++r) {
    TrafficCounters counted;
    create_null_world(options_of(4), r)->run([&](RankContext& rank) {
      const auto a = tensor::Allocator::create(Device::meta);
      EXPECT_EQ(rank.rank(), r);
      step(rank, *a);
      counted = rank.traffic();
    });
    EXPECT_EQ(counted.bytes, local[static_cast<std::size_t>(r)].bytes) << "rank " << r;
  }
  EXPECT_EQ(local[2].bytes.at("world").at("broadcast"), 3 * 44);
  EXPECT_EQ(local[0].bytes.at("tp").at("send"), 32);
  EXPECT_EQ(local[0].bytes.count("cp"), 0U);
}

TEST(NullWorld, ChecksShapes) {
  EXPECT_THROW(create_null_world(options_of(4), 1)->run([](RankContext& rank) {
    const auto a = tensor::Allocator::create(Device::meta);
    const auto group = rank.create_group("tp", {0, 1, 2, 3});
    group->all_gather(Tensor::empty(*a, {2, 5}, DType::float32, MemoryKind::stash), {1, 1, 1, 1},
                      Tensor::empty(*a, {4, 5}, DType::float32, MemoryKind::stash), "x");
  }),
               Error);
}

}  // namespace
}  // namespace megatron::comm
