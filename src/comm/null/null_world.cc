// The null world: one rank of a world of any size, where nothing moves; with meta tensors this counts a run's bytes.
#include <utility>

#include "comm/abort.h"
#include "comm/rank_core.h"
#include "comm/request.h"

namespace megatron::comm {

namespace {

/// Done at once, but holds its tensors until someone asks for it, as operations that take time do.
class NullOperation : public Operation {
 public:
  explicit NullOperation(Request request) : request_(std::move(request)) {}
  void wait() override {}
  bool ready() override { return true; }

 private:
  Request request_;
};

// The front has checked shapes and counted bytes; operations leave their tensors as they are.
class NullChannel : public Channel {
 public:
  std::unique_ptr<Operation> post(Request request) override {
    return std::make_unique<NullOperation>(std::move(request));
  }
};

class NullWorld : public World {
 public:
  NullWorld(const WorldOptions& options, int rank) : options_(options), rank_(rank) {}

  int world_size() const override { return options_.world_size; }
  std::vector<int> local_ranks() const override { return {rank_}; }
  bool is_main_process() const override { return true; }
  // Nothing is printed: the caller's own exception says it all.
  bool failure_reported() const override { return false; }

  void run(const std::function<void(RankContext&)>& fn) override {
    RankCore core(rank_, options_);
    CoreRankContext context(core, options_.world_size, 1, [](const std::string&, const std::vector<int>&, int, int) {
      return std::make_unique<NullChannel>();
    });
    fn(context);
  }

 private:
  WorldOptions options_;
  int rank_;
};

}  // namespace

std::unique_ptr<World> create_null_world(const WorldOptions& options, int rank) {
  MEGATRON_CHECK(rank >= 0 && rank < options.world_size, "rank ", rank, " of a world of ", options.world_size);
  return std::make_unique<NullWorld>(options, rank);
}

}  // namespace megatron::comm
