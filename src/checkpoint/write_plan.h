// Who writes what where: made alike on every rank from what all ranks hold.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/state_entry.h"
#include "comm/communicator.h"

namespace megatron::checkpoint {

/// A box of a logical tensor and the rank that owns it.
struct PlannedBox {
  int rank = 0;
  spec::Box box;
};

struct PlannedTensor {
  std::string name;
  DType dtype = DType::float32;
  int num_dims = 2;
  std::int64_t rows = 0, cols = 1;
  std::vector<PlannedBox> boxes;  // they tile the tensor
  int writer = 0;
  int file = 0;             // index into WritePlan::files
  std::int64_t offset = 0;  // in the file

  std::int64_t row_bytes() const { return cols * dtype_size(dtype); }
  std::int64_t bytes() const { return rows * row_bytes(); }
};

struct PlannedFile {
  std::string name;
  std::string header;  // what stands before the data
  std::int64_t bytes = 0;
};

/// Rows [row, row + rows) of a tensor: what moves and is written at a time.
struct Panel {
  int tensor = 0;
  std::int64_t row = 0, rows = 0;
};

struct WritePlan {
  std::vector<PlannedTensor> tensors;  // by name, numbers in names by value
  std::vector<PlannedFile> files;
  /// In the order in which all ranks treat them: the writers' lists dealt in turn, so that all writers are busy.
  std::vector<Panel> panels;
};

/// Collective: exchanges what each rank owns. Throws Error (alike on every rank) unless the owned boxes of each tensor
/// tile it exactly and the ranks agree on its shape and dtype.
WritePlan make_write_plan(comm::Communicator& world, std::span<const StateEntry> entries, std::int64_t max_file_bytes,
                          std::int64_t max_panel_bytes);

/// "layers.2" before "layers.10".
bool natural_less(const std::string& a, const std::string& b);

}  // namespace megatron::checkpoint
