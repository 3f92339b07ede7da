// The world of processes, on a transport between threads: same conformance, same disagreements, same ends.
#include "comm/mpi/process_world.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "comm/conformance.h"
#include "comm/loopback_transport.h"
#include "comm/mpi/wire.h"

namespace megatron::comm {
namespace {

using conformance::options_of;

using MakeTransport = std::function<std::unique_ptr<Transport>(const std::shared_ptr<LoopbackHub>&, int rank)>;

std::unique_ptr<Transport> make_loopback(const std::shared_ptr<LoopbackHub>& hub, int rank) {
  return std::make_unique<LoopbackTransport>(hub, rank);
}

// One world per thread; returns the message of the exception that each run() throws ("" for none).
std::vector<std::string> run_processes(int n, const WorldOptions& options, std::int64_t max_bytes,
                                       const std::function<void(RankContext&)>& fn,
                                       const MakeTransport& make_transport = make_loopback) {
  const auto hub = std::make_shared<LoopbackHub>(n);
  std::vector<std::string> messages(static_cast<std::size_t>(n));
  std::vector<std::thread> processes;
  for (int rank = 0; rank < n; ++rank)
    processes.emplace_back([&, rank] {
      try {
        ProcessWorld world(
            options, [&] { return make_transport(hub, rank); }, max_bytes);
        world.run(fn);
      } catch (const std::exception& e) {
        messages[static_cast<std::size_t>(rank)] = e.what();
      }
    });
  for (std::thread& process : processes) process.join();
  return messages;
}

class ProcessConformance : public testing::TestWithParam<int> {};

TEST_P(ProcessConformance, AllOperations) {
  std::atomic<int> ranks{0};
  const auto messages = run_processes(GetParam(), options_of(GetParam()), Transport::kMaxBytes, [&](RankContext& rank) {
    conformance::run_all(rank, 20000);
    ++ranks;
  });
  EXPECT_EQ(ranks.load(), GetParam());
  for (const std::string& message : messages) EXPECT_EQ(message, "");
}

TEST_P(ProcessConformance, LongDataInPieces) {
  std::atomic<int> ranks{0};
  WorldOptions options = options_of(GetParam());
  options.perturb_seed = 3;
  // As if a transfer could carry only 3 kB: what is said of a GiB holds for any bound.
  const auto messages = run_processes(GetParam(), options, 3001, [&](RankContext& rank) {
    conformance::run_all(rank, 7000);
    ++ranks;
  });
  EXPECT_EQ(ranks.load(), GetParam());
  for (const std::string& message : messages) EXPECT_EQ(message, "");
}

INSTANTIATE_TEST_SUITE_P(Sizes, ProcessConformance, testing::Values(1, 2, 3, 5));

TEST(ProcessWorld, FirstFailureIsToldToAll) {
  const auto messages = run_processes(3, options_of(3), Transport::kMaxBytes, [](RankContext& rank) {
    const auto group = rank.create_group("tp", {0, 1, 2});
    group->barrier("start");
    if (rank.rank() == 1) throw Error("boom");
    group->barrier("never");
  });
  EXPECT_EQ(messages[1], "boom");
  EXPECT_EQ(messages[0], "rank 1, after barrier #0 \"start\" in tp: boom");
  EXPECT_EQ(messages[2], messages[0]);
}

TEST(ProcessWorld, FailureAfterOthersHaveFinished) {
  const auto messages = run_processes(3, options_of(3), Transport::kMaxBytes, [](RankContext& rank) {
    if (rank.rank() != 2) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    throw Error("late");
  });
  EXPECT_EQ(messages[2], "late");
  EXPECT_EQ(messages[0], "rank 2, before its first operation: late");
}

TEST(ProcessWorld, AllFailAtOnceAndOneIsNamed) {
  const auto messages = run_processes(4, options_of(4), Transport::kMaxBytes,
                                      [](RankContext& rank) { throw Error(str_cat("no file ", rank.rank())); });
  // Exactly one keeps its own error; the others name it.
  int own = 0;
  std::string culprit;
  for (int r = 0; r < 4; ++r)
    if (messages[static_cast<std::size_t>(r)] == str_cat("no file ", r)) {
      ++own;
      culprit = str_cat("rank ", r, ", before its first operation: no file ", r);
    }
  EXPECT_EQ(own, 1);
  for (int r = 0; r < 4; ++r)
    if (messages[static_cast<std::size_t>(r)] != str_cat("no file ", r)) {
      EXPECT_EQ(messages[static_cast<std::size_t>(r)], culprit);
    }
}

TEST(ProcessWorld, DisagreementNamesBoth) {
  const auto messages = run_processes(3, options_of(3), Transport::kMaxBytes, [](RankContext& rank) {
    const auto a = tensor::Allocator::create(Device::cpu);
    const auto group = rank.create_group("dp", {0, 1, 2});
    Tensor t = Tensor::zeros(*a, {rank.rank() == 2 ? 5 : 4}, DType::float32, MemoryKind::gradient);
    group->all_reduce(t, ReduceOp::sum, "grads").wait();
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("rank 2 posted all_reduce float32 [5] \"grads\""), std::string::npos) << message;
    EXPECT_NE(message.find("posted all_reduce float32 [4] \"grads\""), std::string::npos) << message;
  }
}

TEST(ProcessWorld, DisagreementOfMessages) {
  const auto messages = run_processes(2, options_of(2), Transport::kMaxBytes, [](RankContext& rank) {
    const auto a = tensor::Allocator::create(Device::cpu);
    const auto group = rank.create_group("pp", {0, 1});
    Tensor t = Tensor::zeros(*a, {4}, DType::float32, MemoryKind::activation);
    if (rank.rank() == 0)
      group->send(t, 1, "forward").wait();
    else
      group->receive(t, 0, "backward").wait();
  });
  for (const std::string& message : messages) {
    EXPECT_NE(message.find("rank 0 posted message float32 [4] \"forward\""), std::string::npos) << message;
    EXPECT_NE(message.find("rank 1 posted message float32 [4] \"backward\""), std::string::npos) << message;
  }
}

TEST(ProcessWorld, RankThatEndsEarlyIsNamed) {
  const auto messages = run_processes(2, options_of(2), Transport::kMaxBytes, [](RankContext& rank) {
    const auto group = rank.create_group("dp", {0, 1});
    if (rank.rank() == 0) group->barrier("grads");
  });
  for (const std::string& message : messages)
    EXPECT_NE(message.find("rank 1 has ended without it"), std::string::npos) << message;
}

TEST(ProcessWorld, MessagesThatNobodyReceives) {
  const auto messages = run_processes(2, options_of(2), Transport::kMaxBytes, [](RankContext& rank) {
    const auto a = tensor::Allocator::create(Device::cpu);
    const auto group = rank.create_group("pp", {0, 1});
    if (rank.rank() == 0)
      group->send(Tensor::zeros(*a, {100000}, DType::float32, MemoryKind::activation), 1, "lost").wait();
  });
  for (const std::string& message : messages) EXPECT_EQ(message, "");
}

/// From a moment on no note comes or goes, as if the process had died.
class DyingTransport : public LoopbackTransport {
 public:
  DyingTransport(std::shared_ptr<LoopbackHub> hub, int rank, const std::atomic<bool>& dead)
      : LoopbackTransport(std::move(hub), rank), dead_(dead) {}
  Ticket send_note(int to, const std::vector<std::byte>& note) override {
    return dead_ ? 0 : LoopbackTransport::send_note(to, note);
  }
  bool next_note(int& from, std::vector<std::byte>& note) override {
    return !dead_ && LoopbackTransport::next_note(from, note);
  }

 private:
  const std::atomic<bool>& dead_;
};

TEST(ProcessWorld, WhoIsAskedToStopDoesNotWaitForADeadProcess) {
  for (const int victim : {0, 1}) {  // 0 is the one that decides while it lives
    std::atomic<int> signal{0}, failures{0};
    std::atomic<bool> dead{false};
    WorldOptions options = options_of(4);
    options.stop_signal = &signal;
    options.on_failure = [&] { ++failures; };
    const auto messages = run_processes(
        4, options, Transport::kMaxBytes,
        [&](RankContext& rank) {
          const auto group = rank.create_group("dp", {0, 1, 2, 3});
          group->barrier("start");
          if (rank.rank() == victim) {
            dead = true;
            signal = 15;
            return;
          }
          group->barrier("never");
        },
        [&](const std::shared_ptr<LoopbackHub>& hub, int rank) -> std::unique_ptr<Transport> {
          if (rank == victim) return std::make_unique<DyingTransport>(hub, rank, dead);
          return make_loopback(hub, rank);
        });
    std::string first;
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      const std::string& message = messages[static_cast<std::size_t>(rank)];
      EXPECT_NE(message.find(str_cat("barrier #1 \"never\" in dp: asked to stop, but the process of rank ", victim,
                                     " does not answer: ending now, without a checkpoint")),
                std::string::npos)
          << message;
      if (first.empty()) first = message;
      EXPECT_EQ(message, first) << "one failure is the first, for all";
    }
    EXPECT_EQ(failures.load(), 4);
  }
}

TEST(ProcessWorld, WrongWorldSizeIsRefused) {
  WorldOptions options = options_of(3);
  const auto messages = run_processes(2, options, Transport::kMaxBytes, [](RankContext&) {});
  for (const std::string& message : messages)
    EXPECT_NE(message.find("--world-size 3: the launcher started 2 processes"), std::string::npos) << message;
}

TEST(ProcessWorld, OutstandingOperationsAreLeftSafely) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    WorldOptions options = options_of(3);
    options.perturb_seed = seed;
    const auto messages = run_processes(3, options, Transport::kMaxBytes, [&](RankContext& rank) {
      const auto a = tensor::Allocator::create(Device::cpu);
      const auto group = rank.create_group("tp", {0, 1, 2});
      std::vector<Pending<Tensor>> pending;
      for (int i = 0; i < 6; ++i) {
        Tensor t = Tensor::zeros(*a, {30000}, DType::float32, MemoryKind::gradient);
        pending.push_back(group->all_reduce(t, ReduceOp::sum, "x"));
        if (rank.rank() == 2 && i == static_cast<int>(seed) % 6) throw Error("boom");
        if (i % 2 == 1) pending[static_cast<std::size_t>(i)].wait();
      }
    });
    EXPECT_EQ(messages[2], "boom");
  }
}

TEST(Wire, NotesComeBackAsTheyWere) {
  Note note;
  note.kind = NoteKind::collective;
  note.group = 77;
  note.sequence = 5;
  note.key = {OperationKind::all_gather, ReduceOp::sum, DType::bfloat16, -1, {1, 2, 3}, "label"};
  note.tag = 9;
  note.rows = 4;
  note.bytes = 3;
  note.data = {std::byte{1}, std::byte{2}, std::byte{3}};
  const auto bytes = encode(note);
  const Note back = decode(bytes, 0);
  EXPECT_EQ(back.key, note.key);
  EXPECT_EQ(back.group, 77U);
  EXPECT_EQ(back.sequence, 5);
  EXPECT_EQ(back.tag, 9);
  EXPECT_EQ(back.rows, 4);
  EXPECT_EQ(back.bytes, 3);
  EXPECT_EQ(back.data, note.data);
  // Damaged notes are refused, whatever was cut off.
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(decode({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length)}, 0), CommError) << length;
}

TEST(Wire, GroupsDiffer) {
  EXPECT_EQ(group_id("tp", {0, 1}, 0), group_id("tp", {0, 1}, 0));
  EXPECT_NE(group_id("tp", {0, 1}, 0), group_id("tp", {0, 1}, 1));
  EXPECT_NE(group_id("tp", {0, 1}, 0), group_id("tp", {0, 2}, 0));
  EXPECT_NE(group_id("tp", {0, 1}, 0), group_id("dp", {0, 1}, 0));
}

}  // namespace
}  // namespace megatron::comm
