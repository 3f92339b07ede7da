#include "comm/decorators.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <thread>
#include <utility>

#include "base/rng.h"

namespace megatron::comm {

namespace {

bool is_float(DType dtype) {
  return dtype == DType::float32 || dtype == DType::float64 || dtype == DType::bfloat16 || dtype == DType::float16;
}

void write_nan(Tensor& tensor) {
  if (tensor.is_meta() || tensor.numel() == 0) return;
  switch (tensor.dtype()) {
    case DType::float32:
      tensor.data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      break;
    case DType::float64:
      tensor.data<double>()[0] = std::numeric_limits<double>::quiet_NaN();
      break;
    // 0x7FFF is a NaN in both formats of 16 bits.
    case DType::bfloat16:
    case DType::float16:
      *static_cast<std::uint16_t*>(tensor.view().pointer) = 0x7FFF;
      break;
    default:
      break;
  }
}

// A receive whose result is damaged once it has come.
class DamagedOperation : public Operation {
 public:
  DamagedOperation(std::unique_ptr<Operation> inner, Tensor output)
      : inner_(std::move(inner)), output_(std::move(output)) {}
  void wait() override {
    if (inner_ != nullptr) inner_->wait();
    write_nan(output_);
  }
  bool ready() override { return inner_ == nullptr || inner_->ready(); }

 private:
  std::unique_ptr<Operation> inner_;
  Tensor output_;
};

class FaultChannel : public Channel {
 public:
  FaultChannel(std::unique_ptr<Channel> inner, RankCore& core, std::string group, int size)
      : inner_(std::move(inner)), core_(core), group_(std::move(group)), size_(size) {}

  std::unique_ptr<Operation> post(Request request) override {
    const Tensor& data = request.input.defined() ? request.input : request.output;
    const bool has_float_data = data.defined() && data.numel() > 0 && is_float(data.dtype());
    const std::optional<Fault> fault = core_.faults.next(core_.status.iteration(), has_float_data);
    if (!fault) return inner_->post(std::move(request));
    switch (fault->kind) {
      case FaultKind::throw_error:
        throw Error("injected fault: throw");
      case FaultKind::delay:
        std::this_thread::sleep_for(std::chrono::duration<double>(fault->seconds));
        break;
      case FaultKind::wrong_count:
        spoil_count(request);
        break;
      case FaultKind::exit_process:
        std::_Exit(9);
      case FaultKind::kill_process:
        ::kill(::getpid(), SIGKILL);
        break;
      case FaultKind::stop_process:
        ::kill(::getpid(), SIGSTOP);
        break;
      case FaultKind::nan: {
        if (request.input.defined()) {
          write_nan(request.input);
          break;
        }
        Tensor output = request.output;
        return std::make_unique<DamagedOperation>(inner_->post(std::move(request)), std::move(output));
      }
    }
    return inner_->post(std::move(request));
  }

 private:
  // The key alone is spoilt: members compare keys before any byte moves.
  void spoil_count(Request& request) {
    if (size_ == 1) throw CommError(str_cat("injected fault: wrong count in group ", group_, " of one rank"));
    auto& counts = request.key.counts;
    if (counts.empty())
      counts.push_back(-1);
    else
      --counts.front();
  }

  std::unique_ptr<Channel> inner_;
  RankCore& core_;
  std::string group_;
  int size_;
};

// A pure function of (seed, rank, how often it was asked): a run can be repeated.
void perturb(RankCore& core) {
  const PhiloxKey key = make_philox_key(core.perturb_seed, RandomPurpose::test, static_cast<std::uint64_t>(core.rank));
  const std::uint64_t count = core.perturb_count++;
  const auto random =
      philox4x32(key, {static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(count >> 32), 0, 0});
  for (std::uint32_t i = random[0] % 4; i > 0; --i) std::this_thread::yield();
  if (random[1] % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random[2] % 300));
}

class PerturbedOperation : public Operation {
 public:
  PerturbedOperation(RankCore& core, std::unique_ptr<Operation> inner) : core_(core), inner_(std::move(inner)) {}
  void wait() override {
    perturb(core_);
    inner_->wait();
    perturb(core_);
  }
  bool ready() override {
    perturb(core_);
    return inner_->ready();
  }

 private:
  RankCore& core_;
  std::unique_ptr<Operation> inner_;
};

class PerturbChannel : public Channel {
 public:
  PerturbChannel(std::unique_ptr<Channel> inner, RankCore& core) : inner_(std::move(inner)), core_(core) {}
  std::unique_ptr<Operation> post(Request request) override {
    perturb(core_);
    auto operation = inner_->post(std::move(request));
    perturb(core_);
    if (operation == nullptr) return operation;
    return std::make_unique<PerturbedOperation>(core_, std::move(operation));
  }

 private:
  std::unique_ptr<Channel> inner_;
  RankCore& core_;
};

}  // namespace

std::unique_ptr<Channel> decorate(std::unique_ptr<Channel> inner, RankCore& core, const std::string& group, int size) {
  if (core.perturb_seed != 0) inner = std::make_unique<PerturbChannel>(std::move(inner), core);
  if (core.faults.armed()) inner = std::make_unique<FaultChannel>(std::move(inner), core, group, size);
  return inner;
}

}  // namespace megatron::comm
