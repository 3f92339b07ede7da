#include "checkpoint/writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "checkpoint/agree.h"
#include "checkpoint/checksum.h"
#include "checkpoint/file_io.h"
#include "checkpoint/save_folder.h"
#include "checkpoint/write_plan.h"
#include "tensor/allocator.h"

namespace megatron::checkpoint {
namespace {

/// How much a holder may have under way before it waits for the oldest.
constexpr std::int64_t kMaxSendBytes = 64 * kMiB;

/// Rows [row, row + rows) of `box`, cut to the panel.
spec::Box cut(const spec::Box& box, const Panel& panel) {
  const std::int64_t first = std::max(box.row, panel.row);
  const std::int64_t last = std::min(box.row + box.rows, panel.row + panel.rows);
  return {first, box.col, std::max<std::int64_t>(0, last - first), box.cols};
}

/// A box of the logical tensor as it lies in this rank's memory.
struct LocalBox {
  const std::byte* data = nullptr;  // its first element
  std::int64_t row_stride = 0;      // bytes
};

void copy_rows(const std::byte* from, std::int64_t from_stride, std::byte* to, std::int64_t to_stride,
               std::int64_t rows, std::int64_t row_bytes) {
  if (from_stride == row_bytes && to_stride == row_bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(rows * row_bytes));
    return;
  }
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(to + r * to_stride, from + r * from_stride, static_cast<std::size_t>(row_bytes));
}

/// Moves all panels from holders to writers and writes them. Failures of files are kept, not thrown: the other ranks
/// count on this one's messages.
class PanelMover {
 public:
  PanelMover(comm::Communicator& world, const WritePlan& plan, std::span<const StateEntry> entries,
             const std::string& folder, Failure& failure)
      : world_(world), plan_(plan), folder_(folder), failure_(failure), checksums_(plan.tensors.size()) {
    for (const StateEntry& entry : entries)
      if (entry.writer) held_[entry.name].push_back(&entry);
  }

  void run() {
    for (const Panel& panel : plan_.panels) {
      const PlannedTensor& tensor = plan_.tensors[static_cast<std::size_t>(panel.tensor)];
      if (tensor.writer == world_.rank())
        receive_and_write(tensor, panel);
      else
        send_boxes(tensor, panel);
    }
    while (!sends_.empty()) wait_for_oldest();
    failure_.guard([&] {
      for (auto& [index, file] : files_) {
        file.sync();
        file.close();
      }
    });
  }

  /// Of a tensor that this rank wrote.
  std::uint64_t checksum(std::size_t tensor) const { return checksums_[tensor]; }

 private:
  struct Send {
    comm::Pending<Tensor> pending;
    std::int64_t bytes;
  };

  LocalBox local_box(const PlannedTensor& tensor, const spec::Box& whole, const spec::Box& part) const {
    for (const StateEntry* entry : held_.at(tensor.name))
      for (const spec::Piece& piece : entry->sharding.pieces) {
        if (!piece.owned || !(piece.global == whole)) continue;
        const auto view = entry->tensor.view_const();
        const std::int64_t stride = view.stride(0) * dtype_size(tensor.dtype);
        return {static_cast<const std::byte*>(view.pointer) + (piece.local_row + part.row - whole.row) * stride,
                stride};
      }
    MEGATRON_CHECK(false, tensor.name, ": a box that was announced is not there");
    return {};
  }

  Tensor buffer(std::int64_t elements, DType dtype) {
    return Tensor::empty(*allocator_, {elements}, dtype, MemoryKind::communication);
  }

  void wait_for_oldest() {
    sends_.front().pending.wait();
    sending_bytes_ -= sends_.front().bytes;
    sends_.pop_front();
  }

  void send_boxes(const PlannedTensor& tensor, const Panel& panel) {
    for (const PlannedBox& planned : tensor.boxes) {
      const spec::Box part = cut(planned.box, panel);
      if (planned.rank != world_.rank() || part.numel() == 0) continue;
      const LocalBox local = local_box(tensor, planned.box, part);
      Tensor packed = buffer(part.numel(), tensor.dtype);
      const std::int64_t row_bytes = part.cols * dtype_size(tensor.dtype);
      copy_rows(local.data, local.row_stride, static_cast<std::byte*>(packed.view().pointer), row_bytes, part.rows,
                row_bytes);
      const std::int64_t bytes = packed.bytes();
      while (!sends_.empty() && sending_bytes_ + bytes > kMaxSendBytes) wait_for_oldest();
      sends_.push_back({world_.send(std::move(packed), tensor.writer, "checkpoint panel"), bytes});
      sending_bytes_ += bytes;
    }
  }

  /// Where the panel lies as it must stand in the file, if this rank holds it so; else null.
  const std::byte* whole_panel(const PlannedTensor& tensor, const Panel& panel) const {
    for (const PlannedBox& planned : tensor.boxes) {
      const spec::Box part = cut(planned.box, panel);
      if (planned.rank != world_.rank() || part.rows != panel.rows || part.cols != tensor.cols) continue;
      const LocalBox local = local_box(tensor, planned.box, part);
      if (local.row_stride == tensor.row_bytes()) return local.data;
    }
    return nullptr;
  }

  void receive_and_write(const PlannedTensor& tensor, const Panel& panel) {
    const std::int64_t element = dtype_size(tensor.dtype);
    const std::int64_t panel_bytes = panel.rows * tensor.row_bytes();
    if (const std::byte* const whole = whole_panel(tensor, panel)) {
      failure_.guard([&] { write_panel(tensor, panel, {whole, static_cast<std::size_t>(panel_bytes)}); });
      return;
    }
    std::vector<std::pair<spec::Box, comm::Pending<Tensor>>> arriving;
    for (const PlannedBox& planned : tensor.boxes) {
      const spec::Box part = cut(planned.box, panel);
      if (planned.rank == world_.rank() || part.numel() == 0) continue;
      arriving.emplace_back(part, world_.receive(buffer(part.numel(), tensor.dtype), planned.rank, "checkpoint panel"));
    }
    if (panel_.size() < static_cast<std::size_t>(panel_bytes)) panel_.resize(static_cast<std::size_t>(panel_bytes));
    const auto place = [&](const spec::Box& part, const std::byte* from, std::int64_t stride) {
      std::byte* const to = panel_.data() + (part.row - panel.row) * tensor.row_bytes() + part.col * element;
      copy_rows(from, stride, to, tensor.row_bytes(), part.rows, part.cols * element);
    };
    for (const PlannedBox& planned : tensor.boxes) {
      const spec::Box part = cut(planned.box, panel);
      if (planned.rank != world_.rank() || part.numel() == 0) continue;
      const LocalBox local = local_box(tensor, planned.box, part);
      place(part, local.data, local.row_stride);
    }
    for (auto& [part, pending] : arriving) {
      const Tensor box = pending.wait();
      place(part, static_cast<const std::byte*>(box.view_const().pointer), part.cols * element);
    }
    failure_.guard([&] { write_panel(tensor, panel, {panel_.data(), static_cast<std::size_t>(panel_bytes)}); });
  }

  void write_panel(const PlannedTensor& tensor, const Panel& panel, std::span<const std::byte> data) {
    if (panel.row == 0) running_.reset();
    running_.add(data);
    if (panel.row + panel.rows == tensor.rows) checksums_[static_cast<std::size_t>(panel.tensor)] = running_.value();
    auto found = files_.find(tensor.file);
    if (found == files_.end())
      found =
          files_
              .emplace(tensor.file, OutputFile(folder_ + "/" + plan_.files[static_cast<std::size_t>(tensor.file)].name,
                                               OutputFile::Mode::open))
              .first;
    found->second.write_at(tensor.offset + panel.row * tensor.row_bytes(), data);
  }

  comm::Communicator& world_;
  const WritePlan& plan_;
  const std::string& folder_;
  Failure& failure_;
  std::shared_ptr<tensor::Allocator> allocator_ = tensor::Allocator::create(Device::cpu);
  std::map<std::string, std::vector<const StateEntry*>> held_;
  std::map<int, OutputFile> files_;
  std::deque<Send> sends_;
  std::int64_t sending_bytes_ = 0;
  std::vector<std::byte> panel_;
  Checksum running_;
  std::vector<std::uint64_t> checksums_;
};

/// Brings the checksums of all tensors to every rank.
std::vector<std::uint64_t> gather_checksums(comm::Communicator& world, const WritePlan& plan, const PanelMover& mover) {
  const auto allocator = tensor::Allocator::create(Device::cpu);
  const auto count = static_cast<std::int64_t>(plan.tensors.size());
  Tensor sums = Tensor::zeros(*allocator, {count}, DType::int64, MemoryKind::communication);
  for (std::size_t i = 0; i < plan.tensors.size(); ++i)
    if (plan.tensors[i].writer == world.rank())
      sums.data<std::int64_t>()[i] = static_cast<std::int64_t>(mover.checksum(i));
  // One rank gives each value, the others zero: the sum is the value.
  if (count > 0) sums = world.all_reduce(sums, comm::ReduceOp::sum, "checkpoint checksums").wait();
  std::vector<std::uint64_t> all(plan.tensors.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint64_t>(sums.data<std::int64_t>()[i]);
  return all;
}

Manifest make_manifest(const WritePlan& plan, const std::vector<std::uint64_t>& checksums, std::int64_t iteration,
                       const std::string& state_json) {
  Manifest manifest;
  manifest.iteration = iteration;
  for (const PlannedFile& file : plan.files)
    manifest.files[file.name] = {file.bytes, checksum_text(checksum_of(as_bytes(file.header)))};
  manifest.files["state.json"] = {static_cast<std::int64_t>(state_json.size()),
                                  checksum_text(checksum_of(as_bytes(state_json)))};
  for (std::size_t i = 0; i < plan.tensors.size(); ++i)
    manifest.tensors[plan.tensors[i].name] = {plan.files[static_cast<std::size_t>(plan.tensors[i].file)].name,
                                              checksum_text(checksums[i])};
  return manifest;
}

}  // namespace

std::string write_checkpoint(comm::Communicator& world, const std::string& directory, std::int64_t iteration,
                             std::span<const StateEntry> entries, const std::string& state_json,
                             const WriteOptions& options) {
  const bool first = world.rank() == 0;
  const auto announce = [&](std::string_view step) {
    if (options.before_step) options.before_step(step, world.rank());
  };
  const WritePlan plan = make_write_plan(world, entries, options.max_file_bytes, options.max_panel_bytes);
  SaveFolder folder(directory, iteration);
  const auto agree_or_clean = [&](const Failure& failure) {
    const std::string message = agreed_failure(world, failure);
    if (message.empty()) return;
    // What failed is the news; a failure to clean up after it is not. Nothing is removed unless names could be
    // restored.
    Failure cleaning;
    if (first) cleaning.guard([&] { folder.withdraw(); });
    if (first) cleaning.guard([&] { folder.clean(); });
    throw IoError(message);
  };
  Failure failure;
  failure.guard([&] {
    announce("create");
    if (first) folder.create(plan);
  });
  agree_or_clean(failure);

  failure.guard([&] { announce("write"); });
  PanelMover mover(world, plan, entries, folder.temporary(), failure);
  mover.run();
  agree_or_clean(failure);

  const std::vector<std::uint64_t> checksums = gather_checksums(world, plan, mover);
  failure.guard([&] {
    if (!first) return;
    announce("commit");
    folder.complete(make_manifest(plan, checksums, iteration, state_json), state_json);
    announce("rename");
    folder.publish();
    announce("tracker");
    folder.track(iteration);
  });
  agree_or_clean(failure);
  // The checkpoint stands; what is left to remove will be removed by the next save if it cannot be now.
  if (first) Failure().guard([&] { folder.clean(); });
  return folder.final_path();
}

std::string write_checkpoint(comm::Communicator& world, const std::string& directory, std::int64_t iteration,
                             std::span<const StateEntry> entries, const std::string& state_json,
                             std::int64_t max_file_bytes) {
  WriteOptions options;
  options.max_file_bytes = max_file_bytes;
  return write_checkpoint(world, directory, iteration, entries, state_json, options);
}

std::int64_t required_bytes(std::span<const StateEntry> entries) {
  std::int64_t bytes = 0;
  for (const StateEntry& entry : entries)
    if (entry.writer)
      for (const spec::Piece& piece : entry.sharding.pieces)
        if (piece.owned) bytes += piece.global.numel() * dtype_size(entry.tensor.dtype());
  return bytes;
}

void check_free_space(const std::string& directory, std::int64_t bytes) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(directory.empty() ? "." : directory, error);
  while (!std::filesystem::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  if (!std::filesystem::is_directory(path, error))
    throw IoError(str_cat(path.string(), ": is not a folder: checkpoints cannot be written there"));
  if (::access(path.c_str(), W_OK | X_OK) != 0)
    throw IoError(str_cat(path.string(), ": cannot write there: ", std::strerror(errno)));
  const std::int64_t free = free_bytes(path.string());
  if (free < bytes)
    throw IoError(
        str_cat(directory, ": a checkpoint needs ", format_bytes(bytes), ", only ", format_bytes(free), " are free"));
}

void check_free_space(comm::Communicator& world, const std::string& directory, std::span<const StateEntry> entries) {
  const auto allocator = tensor::Allocator::create(Device::cpu);
  Tensor bytes = Tensor::empty(*allocator, {1}, DType::int64, MemoryKind::communication);
  bytes.data<std::int64_t>()[0] = required_bytes(entries);
  bytes = world.all_reduce(bytes, comm::ReduceOp::sum, "checkpoint size").wait();
  Failure failure;
  failure.guard([&] {
    if (world.rank() == 0) check_free_space(directory, bytes.data<std::int64_t>()[0]);
  });
  agree(world, failure);
}

}  // namespace megatron::checkpoint
