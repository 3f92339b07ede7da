// One posted operation as data: its key, which all members must agree on, its tensors and its cut.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace megatron::comm {

enum class OperationKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  send,
  receive,
  barrier
};

constexpr bool is_point_to_point(OperationKind kind) {
  return kind == OperationKind::send || kind == OperationKind::receive;
}
const char* operation_name(OperationKind kind);

/// What members compare. `counts`: elements for all_reduce, broadcast and messages; rows per rank and then elements per
/// row for reduce_scatter and all_gather; elements per row for all_to_all, whose rows are compared pair by pair.
struct Key {
  OperationKind kind = OperationKind::barrier;  // `send` for both ends of a message
  ReduceOp reduce_op = ReduceOp::sum;
  DType dtype = DType::float32;
  int root = -1;
  std::vector<std::int64_t> counts;
  std::string label;

  bool operator==(const Key&) const = default;
  /// all_gather float32 [3 4 | 16] "qkv"
  std::string text() const;
};

struct Request {
  OperationKind kind = OperationKind::barrier;
  Key key;
  Tensor input;                    // what this rank gives; undefined for receive, barrier and where only the root gives
  Tensor output;                   // what it gets; the same tensor as `input` for operations in place
  std::vector<std::int64_t> rows;  // reduce_scatter, all_gather: of each rank; all_to_all: sent to each rank
  std::vector<std::int64_t> receive_rows;  // all_to_all
  std::int64_t row_bytes = 0;
  int peer = -1;  // root, receiver or sender, within the group

  const std::byte* input_data() const;
  std::byte* output_data();
};

/// Bytes that the caller puts on the wire (formulas in world.h) in a group of `size`; `rank` is its place in it.
std::int64_t traffic_bytes(const Request& request, int size, int rank);

/// The error of two ranks that do not agree. Ranks are global.
[[noreturn]] void throw_key_mismatch(const std::string& group, std::int64_t sequence, int rank, const Key& key,
                                     int other_rank, const Key& other_key);
[[noreturn]] void throw_rows_mismatch(const std::string& group, const Key& key, int sender, std::int64_t sent,
                                      int receiver, std::int64_t expected);

/// One rank's end of one group: where operations go once they have been checked and counted.
class Channel {
 public:
  virtual ~Channel() = default;
  /// Never blocks. Throws CommError when the world has been aborted or keys differ. A null result: already done.
  virtual std::unique_ptr<Operation> post(Request request) = 0;
};

}  // namespace megatron::comm
