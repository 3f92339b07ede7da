#include "optim/bucket_reduction.h"

#include <utility>

#include "base/clock.h"
#include "kernels/elementwise.h"

namespace megatron::optim {

BucketReduction::BucketReduction(const ReductionSetup& setup) : setup_(setup) {}

DType BucketReduction::dtype() const { return accumulation_dtype(setup_.layout.parameters().front()->value.dtype()); }

std::int64_t BucketReduction::owned_begin(const FlatBucket& bucket) const {
  return setup_.sharded ? bucket.shard_begin(setup_.rank.mesh.dp.rank()) : bucket.begin;
}

std::int64_t BucketReduction::owned_size(const FlatBucket& bucket) const {
  return setup_.sharded ? bucket.shard_sizes[static_cast<std::size_t>(setup_.rank.mesh.dp.rank())]
                        : bucket.end - bucket.begin;
}

comm::Pending<Tensor> BucketReduction::launch(const FlatBucket& bucket, const Tensor& message) const {
  const mesh::Group& dp = setup_.rank.mesh.dp;
  Tensor sent = message;
  if (setup_.in_bf16) {
    sent = setup_.rank.exec.empty(message.shape(), DType::bfloat16, MemoryKind::communication);
    kernels::copy(setup_.rank.exec, message, sent);
  }
  if (!setup_.sharded) return dp.all_reduce_async(sent, "gradient bucket");
  const std::int64_t begin = owned_begin(bucket) - bucket.begin;
  return dp.communicator()->reduce_scatter(sent, bucket.shard_sizes, sent.slice(0, begin, begin + owned_size(bucket)),
                                           "gradient bucket");
}

Tensor BucketReduction::wait(comm::Pending<Tensor>& reduction) {
  const Clock::time_point start = Clock::now();
  Tensor sums = reduction.wait();
  exposed_seconds_ += seconds_since(start);
  return sums;
}

double BucketReduction::take_exposed_seconds() { return std::exchange(exposed_seconds_, 0.0); }

}  // namespace megatron::optim
