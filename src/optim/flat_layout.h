// Where parameters lie in the flat buffers of a rank (gradients; with a distributed optimizer values as well), how the
// buffers are cut into buckets, and which part of a bucket each data-parallel rank owns.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nn/parameter.h"
#include "spec/flat_cut.h"

namespace megatron::optim {

using spec::segment_begin;

struct FlatSlot {
  nn::Parameter* parameter = nullptr;
  std::int64_t offset = 0;  // elements, in the buffer; a multiple of kernels::kNormSegment
  std::size_t bucket = 0;
};

/// `items` are indices of FlatLayout::parameters() and slots().
using FlatBucket = spec::FlatCut::Bucket;

/// A part of one parameter's local tensor, seen flat: elements [begin, end).
struct ParameterRange {
  nn::Parameter* parameter = nullptr;
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool whole() const { return begin == 0 && end == parameter->value.numel(); }
};

/// What a rank's optimizer updates of one parameter. Both tensors are flat and of range.size() elements; one may be
/// undefined where nobody needs it (GradBuffer knows no values, RankParts::held_values() no gradients).
struct OwnedPart {
  ParameterRange range;
  Tensor gradient;  // final sums, float32 or float64
  Tensor value;
};

/// `range` of the parameter's own value and main_grad.
OwnedPart own_part(const ParameterRange& range);
/// All of each trainable one of `parameters`, from their own values and main_grads.
std::vector<OwnedPart> whole_parts(std::span<nn::Parameter* const> parameters);
/// All of each trainable one of `parameters`.
std::vector<ParameterRange> whole_ranges(std::span<nn::Parameter* const> parameters);

/// True for a parameter that one shard must hold as a whole.
using Indivisible = std::function<bool(const nn::Parameter&)>;

struct FlatLayoutOptions {
  std::int64_t bucket_size = 40'000'000;  // elements
  int shards = 1;                         // data-parallel ranks that own a part of each bucket
  Indivisible indivisible = nullptr;      // null: nothing is
  bool within_groups = false;             // of nn::Parameter::bucket_group: a bucket holds one
};

/// Both uses of a tied embedding table have buckets of their own; otherwise as spec::cut_flat.
class FlatLayout {
 public:
  /// Of the trainable ones among `parameters` (all alike in dtype, which is checked).
  FlatLayout(std::span<nn::Parameter* const> parameters, const FlatLayoutOptions& options);

  /// In forward order.
  const std::vector<nn::Parameter*>& parameters() const { return parameters_; }
  const std::vector<FlatSlot>& slots() const { return slots_; }  // of each of parameters()
  const std::vector<FlatBucket>& buckets() const { return cut_.buckets; }
  std::int64_t num_elements() const { return cut_.num_elements(); }
  bool holds(const nn::Parameter& parameter) const { return index_.count(&parameter) > 0; }
  const FlatSlot& slot_of(const nn::Parameter& parameter) const;
  /// The bucket with the values of the parameters of `bucket`: itself, or the table's for a head's use of a table that
  /// shares its memory (nn::shares_table).
  std::size_t values_bucket(std::size_t bucket) const { return values_buckets_[bucket]; }
  /// What shard `shard` owns of each parameter, in forward order; empty ranges are left out.
  std::vector<ParameterRange> owned_ranges(int shard) const;

 private:
  void find_values_buckets();

  std::vector<nn::Parameter*> parameters_;
  std::vector<FlatSlot> slots_;
  spec::FlatCut cut_;
  std::vector<std::size_t> values_buckets_;                      // of each bucket
  std::unordered_map<const nn::Parameter*, std::size_t> index_;  // into parameters_
};

}  // namespace megatron::optim
