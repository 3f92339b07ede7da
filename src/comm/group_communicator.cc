#include "comm/group_communicator.h"

#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

namespace megatron::comm {

namespace {

void check_dense(const Tensor& tensor, const char* what, std::string_view label) {
  MEGATRON_CHECK(tensor.defined(), what, " of \"", label, "\" is undefined");
  MEGATRON_CHECK(tensor.is_contiguous(), what, " of \"", label, "\" is not dense: ", tensor.shape());
}

void check_reducible(DType dtype, std::string_view label) {
  MEGATRON_CHECK(dtype == DType::float32 || dtype == DType::float64 || dtype == DType::int64 || dtype == DType::int32 ||
                     dtype == DType::bfloat16 || dtype == DType::float16,
                 "no sum over ranks of ", dtype_name(dtype), " for \"", label, "\"");
}

std::int64_t sum_of(const std::vector<std::int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

// Dim 0 of `cut` is cut by `rows`; `part` has the rows of one rank. Returns elements per row.
std::int64_t check_rows(const Tensor& tensor, std::int64_t rows, const char* what, std::string_view label) {
  check_dense(tensor, what, label);
  MEGATRON_CHECK_GE(tensor.num_dims(), 1, what, " of \"", label, "\" has no dim to cut");
  MEGATRON_CHECK_EQ(tensor.size(0), rows, "rows of the ", what, " of \"", label, "\"");
  std::int64_t row_elements = 1;
  for (int dim = 1; dim < tensor.num_dims(); ++dim) row_elements *= tensor.size(dim);
  return row_elements;
}

void check_counts(const std::vector<std::int64_t>& rows, int size, std::string_view label) {
  MEGATRON_CHECK_EQ(static_cast<int>(rows.size()), size, "row counts of \"", label, "\"");
  for (const std::int64_t r : rows) MEGATRON_CHECK_GE(r, 0, "row counts of \"", label, "\"");
}

/// The request of an operation whose whole is cut along dim 0 by `rows`.
Request rows_request(OperationKind kind, Tensor input, const std::vector<std::int64_t>& rows, const Tensor& output,
                     std::int64_t row_elements, std::string_view label) {
  Request request;
  request.kind = kind;
  request.key = {kind, ReduceOp::sum, input.dtype(), -1, rows, std::string(label)};
  request.key.counts.push_back(row_elements);
  request.input = std::move(input);
  request.output = output;
  request.rows = rows;
  request.row_bytes = row_elements * dtype_size(output.dtype());
  return request;
}

// Publishes that the rank waits; a rank that throws stays in that phase, so the error line can name the operation.
class TrackedOperation : public Operation {
 public:
  TrackedOperation(RankCore& core, const std::string& group, std::int64_t sequence, OperationKind kind,
                   std::string label, std::unique_ptr<Operation> inner)
      : core_(core),
        group_(group),
        sequence_(sequence),
        kind_(kind),
        label_(std::move(label)),
        inner_(std::move(inner)) {}
  ~TrackedOperation() override {
    if (waited_ || std::uncaught_exceptions() > exceptions_) return;
    const TraceSpan span(core_.trace, SpanKind::wait, operation_name(kind_), group_, label_);
    core_.status.enter(RankPhase::waiting, group_, sequence_, kind_, label_);
    inner_.reset();
    core_.status.running();
  }
  void wait() override {
    waited_ = true;
    const TraceSpan span(core_.trace, SpanKind::wait, operation_name(kind_), group_, label_);
    core_.status.enter(RankPhase::waiting, group_, sequence_, kind_, label_);
    inner_->wait();
    core_.status.running();
  }
  bool ready() override { return inner_->ready(); }

 private:
  RankCore& core_;
  std::string group_;
  std::int64_t sequence_;
  OperationKind kind_;
  std::string label_;
  std::unique_ptr<Operation> inner_;
  bool waited_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace

GroupCommunicator::GroupCommunicator(RankCore& core, std::string name, std::vector<int> members, int rank_in_group,
                                     std::unique_ptr<Channel> channel)
    : core_(core),
      name_(std::move(name)),
      members_(std::move(members)),
      rank_(rank_in_group),
      channel_(std::move(channel)) {}

Pending<Tensor> GroupCommunicator::post(Request request, Tensor result) {
  const OperationKind kind = request.kind;
  const std::int64_t sequence = sequence_++;
  std::string label = request.key.label;
  const TraceSpan span(core_.trace, SpanKind::post, operation_name(kind), name_, label);
  core_.status.enter(RankPhase::posting, name_, sequence, kind, label);
  const std::int64_t bytes = traffic_bytes(request, size(), rank_);
  if (bytes > 0) core_.traffic.bytes[name_][operation_name(kind)] += bytes;
  std::unique_ptr<Operation> operation = channel_->post(std::move(request));
  core_.status.running();
  if (operation == nullptr) return Pending<Tensor>(std::move(result));
  return Pending<Tensor>(
      std::make_unique<TrackedOperation>(core_, name_, sequence, kind, std::move(label), std::move(operation)),
      std::move(result));
}

Pending<Tensor> GroupCommunicator::all_reduce(Tensor inout, ReduceOp op, std::string_view label) {
  check_dense(inout, "tensor", label);
  check_reducible(inout.dtype(), label);
  Request request;
  request.kind = OperationKind::all_reduce;
  request.key = {request.kind, op, inout.dtype(), -1, {inout.numel()}, std::string(label)};
  request.input = request.output = inout;
  return post(std::move(request), std::move(inout));
}

Pending<Tensor> GroupCommunicator::reduce_scatter(Tensor input, const std::vector<std::int64_t>& rows_per_rank,
                                                  Tensor output, std::string_view label) {
  check_counts(rows_per_rank, size(), label);
  const std::int64_t row_elements = check_rows(input, sum_of(rows_per_rank), "input", label);
  check_reducible(input.dtype(), label);
  const std::int64_t own = rows_per_rank[static_cast<std::size_t>(rank_)];
  MEGATRON_CHECK_EQ(check_rows(output, own, "output", label) * own, row_elements * own, "row size of \"", label, "\"");
  MEGATRON_CHECK(input.dtype() == output.dtype(), "dtypes of \"", label, "\" differ");
  Request request =
      rows_request(OperationKind::reduce_scatter, std::move(input), rows_per_rank, output, row_elements, label);
  return post(std::move(request), std::move(output));
}

Pending<Tensor> GroupCommunicator::all_gather(Tensor input, const std::vector<std::int64_t>& rows_per_rank,
                                              Tensor output, std::string_view label) {
  check_counts(rows_per_rank, size(), label);
  const std::int64_t row_elements = check_rows(output, sum_of(rows_per_rank), "output", label);
  const std::int64_t own = rows_per_rank[static_cast<std::size_t>(rank_)];
  MEGATRON_CHECK_EQ(check_rows(input, own, "input", label) * own, row_elements * own, "row size of \"", label, "\"");
  MEGATRON_CHECK(input.dtype() == output.dtype(), "dtypes of \"", label, "\" differ");
  Request request =
      rows_request(OperationKind::all_gather, std::move(input), rows_per_rank, output, row_elements, label);
  return post(std::move(request), std::move(output));
}

Pending<Tensor> GroupCommunicator::all_to_all(Tensor input, const std::vector<std::int64_t>& send_rows,
                                              const std::vector<std::int64_t>& receive_rows, Tensor output,
                                              std::string_view label) {
  check_counts(send_rows, size(), label);
  check_counts(receive_rows, size(), label);
  const std::int64_t row_elements = check_rows(input, sum_of(send_rows), "input", label);
  MEGATRON_CHECK_EQ(check_rows(output, sum_of(receive_rows), "output", label), row_elements, "row size of \"", label,
                    "\"");
  MEGATRON_CHECK(input.dtype() == output.dtype(), "dtypes of \"", label, "\" differ");
  MEGATRON_CHECK_EQ(send_rows[static_cast<std::size_t>(rank_)], receive_rows[static_cast<std::size_t>(rank_)],
                    "rows that \"", label, "\" sends to itself");
  Request request;
  request.kind = OperationKind::all_to_all;
  request.key = {request.kind, ReduceOp::sum, input.dtype(), -1, {row_elements}, std::string(label)};
  request.input = std::move(input);
  request.output = output;
  request.rows = send_rows;
  request.receive_rows = receive_rows;
  request.row_bytes = row_elements * dtype_size(output.dtype());
  return post(std::move(request), std::move(output));
}

Pending<Tensor> GroupCommunicator::broadcast(Tensor inout, int root, std::string_view label) {
  check_dense(inout, "tensor", label);
  MEGATRON_CHECK(root >= 0 && root < size(), "root ", root, " of \"", label, "\" in a group of ", size());
  Request request;
  request.kind = OperationKind::broadcast;
  request.key = {request.kind, ReduceOp::sum, inout.dtype(), root, {inout.numel()}, std::string(label)};
  if (root == rank_) request.input = inout;
  request.output = inout;
  request.peer = root;
  return post(std::move(request), std::move(inout));
}

Pending<Tensor> GroupCommunicator::send(Tensor tensor, int to, std::string_view label) {
  check_dense(tensor, "tensor", label);
  MEGATRON_CHECK(to >= 0 && to < size() && to != rank_, "rank ", rank_, " of ", size(), " sends \"", label, "\" to ",
                 to);
  Request request;
  request.kind = OperationKind::send;
  request.key = {OperationKind::send, ReduceOp::sum, tensor.dtype(), -1, {tensor.numel()}, std::string(label)};
  request.input = tensor;
  request.peer = to;
  return post(std::move(request), std::move(tensor));
}

Pending<Tensor> GroupCommunicator::receive(Tensor into, int from, std::string_view label) {
  check_dense(into, "tensor", label);
  MEGATRON_CHECK(from >= 0 && from < size() && from != rank_, "rank ", rank_, " of ", size(), " receives \"", label,
                 "\" from ", from);
  Request request;
  request.kind = OperationKind::receive;
  request.key = {OperationKind::send, ReduceOp::sum, into.dtype(), -1, {into.numel()}, std::string(label)};
  request.output = into;
  request.peer = from;
  return post(std::move(request), std::move(into));
}

void GroupCommunicator::barrier(std::string_view label) {
  Request request;
  request.kind = OperationKind::barrier;
  request.key = {request.kind, ReduceOp::sum, DType::uint8, -1, {}, std::string(label)};
  post(std::move(request), Tensor()).wait();
}

std::unique_ptr<Operation> SelfChannel::post(Request request) {
  const std::byte* from = request.input_data();
  std::byte* to = request.output_data();
  if (from != nullptr && to != nullptr && from != to)
    std::memcpy(to, from, static_cast<std::size_t>(request.output.bytes()));
  return nullptr;
}

}  // namespace megatron::comm
