#include "comm/request.h"

#include <numeric>

namespace megatron::comm {

const char* operation_name(OperationKind kind) {
  switch (kind) {
    case OperationKind::all_reduce:
      return "all_reduce";
    case OperationKind::reduce_scatter:
      return "reduce_scatter";
    case OperationKind::all_gather:
      return "all_gather";
    case OperationKind::all_to_all:
      return "all_to_all";
    case OperationKind::broadcast:
      return "broadcast";
    case OperationKind::send:
      return "send";
    case OperationKind::receive:
      return "receive";
    case OperationKind::barrier:
      return "barrier";
  }
  return "?";
}

std::string Key::text() const {
  std::string out = kind == OperationKind::send ? "message" : operation_name(kind);
  if (kind == OperationKind::all_reduce && reduce_op != ReduceOp::sum)
    out += reduce_op == ReduceOp::max ? " max" : " min";
  if (kind != OperationKind::barrier) {
    out += str_cat(" ", dtype_name(dtype), " [");
    const bool rows = kind == OperationKind::reduce_scatter || kind == OperationKind::all_gather;
    for (std::size_t i = 0; i < counts.size(); ++i)
      out += str_cat(i == 0 ? "" : (rows && i + 1 == counts.size() ? " | " : " "), counts[i]);
    out += "]";
  }
  if (root >= 0) out += str_cat(" from ", root);
  return out + str_cat(" \"", label, "\"");
}

const std::byte* Request::input_data() const {
  return input.defined() ? static_cast<const std::byte*>(input.view_const().pointer) : nullptr;
}

std::byte* Request::output_data() {
  return output.defined() ? static_cast<std::byte*>(output.view().pointer) : nullptr;
}

std::int64_t traffic_bytes(const Request& request, int size, int rank) {
  const std::int64_t n = size;
  if (n == 1) return 0;
  switch (request.kind) {
    case OperationKind::all_reduce:
      return 2 * (n - 1) * request.input.bytes() / n;
    case OperationKind::reduce_scatter:
      return (n - 1) * request.input.bytes() / n;
    case OperationKind::all_gather:
      return (n - 1) * request.output.bytes() / n;
    case OperationKind::all_to_all: {
      const std::int64_t rows = std::accumulate(request.rows.begin(), request.rows.end(), std::int64_t{0});
      return (rows - request.rows[static_cast<std::size_t>(rank)]) * request.row_bytes;
    }
    case OperationKind::broadcast:
      return request.peer == rank ? (n - 1) * request.output.bytes() : 0;
    case OperationKind::send:
      return request.input.bytes();
    case OperationKind::receive:
    case OperationKind::barrier:
      return 0;
  }
  return 0;
}

void throw_key_mismatch(const std::string& group, std::int64_t sequence, int rank, const Key& key, int other_rank,
                        const Key& other_key) {
  throw CommError(str_cat("ranks disagree on operation ", sequence, " of group ", group, ": rank ", rank, " posted ",
                          key.text(), ", rank ", other_rank, " posted ", other_key.text()));
}

void throw_rows_mismatch(const std::string& group, const Key& key, int sender, std::int64_t sent, int receiver,
                         std::int64_t expected) {
  throw CommError(str_cat("ranks disagree in group ", group, " on ", key.text(), ": rank ", sender, " sends ", sent,
                          " rows to rank ", receiver, ", which expects ", expected));
}

}  // namespace megatron::comm
