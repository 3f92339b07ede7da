#include "checkpoint/write_plan.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <map>
#include <tuple>

#include "base/check.h"
#include "checkpoint/safetensors.h"
#include "tensor/allocator.h"

namespace megatron::checkpoint {
namespace {

/// A catalogue as 64-bit words: what one rank owns.
class Encoder {
 public:
  void number(std::int64_t value) { words_.push_back(value); }
  void text(const std::string& value) {
    number(static_cast<std::int64_t>(value.size()));
    const std::size_t first = words_.size();
    words_.resize(first + (value.size() + 7) / 8, 0);
    std::memcpy(words_.data() + first, value.data(), value.size());
  }
  const std::vector<std::int64_t>& words() const { return words_; }

 private:
  std::vector<std::int64_t> words_;
};

class Decoder {
 public:
  explicit Decoder(std::span<const std::int64_t> words) : words_(words) {}
  bool done() const { return words_.empty(); }
  std::int64_t number() {
    MEGATRON_CHECK(!words_.empty(), "a rank's catalogue is cut short");
    const std::int64_t value = words_.front();
    words_ = words_.subspan(1);
    return value;
  }
  std::string text() {
    const auto size = static_cast<std::size_t>(number());
    MEGATRON_CHECK_LE((size + 7) / 8, words_.size(), "a rank's catalogue is cut short");
    std::string value(reinterpret_cast<const char*>(words_.data()), size);
    words_ = words_.subspan((size + 7) / 8);
    return value;
  }

 private:
  std::span<const std::int64_t> words_;
};

std::vector<std::int64_t> encode(std::span<const StateEntry> entries) {
  Encoder out;
  for (const StateEntry& entry : entries) {
    if (!entry.writer) continue;
    std::vector<spec::Box> boxes;
    for (const spec::Piece& piece : entry.sharding.pieces)
      if (piece.owned) boxes.push_back(piece.global);
    if (boxes.empty()) continue;
    out.text(entry.name);
    out.number(static_cast<std::int64_t>(entry.tensor.dtype()));
    out.number(entry.sharding.num_dims);
    out.number(entry.sharding.rows);
    out.number(entry.sharding.cols);
    out.number(static_cast<std::int64_t>(boxes.size()));
    for (const spec::Box& box : boxes)
      for (const std::int64_t value : {box.row, box.col, box.rows, box.cols}) out.number(value);
  }
  return out.words();
}

/// All ranks' words one after the other, and how many each gave.
std::vector<std::int64_t> gather_words(comm::Communicator& world, const std::vector<std::int64_t>& words,
                                       std::vector<std::int64_t>& counts) {
  const auto allocator = tensor::Allocator::create(Device::cpu);
  const auto make = [&](std::int64_t n) {
    return Tensor::empty(*allocator, {n}, DType::int64, MemoryKind::communication);
  };
  Tensor count = make(1);
  count.data<std::int64_t>()[0] = static_cast<std::int64_t>(words.size());
  const auto size = static_cast<std::size_t>(world.size());
  const Tensor all_counts =
      world.all_gather(count, std::vector<std::int64_t>(size, 1), make(world.size()), "checkpoint catalogue size")
          .wait();
  counts.assign(all_counts.data<std::int64_t>(), all_counts.data<std::int64_t>() + size);
  std::int64_t total = 0;
  for (const std::int64_t n : counts) total += n;
  Tensor mine = make(static_cast<std::int64_t>(words.size()));
  std::copy(words.begin(), words.end(), mine.data<std::int64_t>());
  const Tensor all = world.all_gather(mine, counts, make(total), "checkpoint catalogue").wait();
  return {all.data<std::int64_t>(), all.data<std::int64_t>() + total};
}

bool overlap(const spec::Box& a, const spec::Box& b) {
  return a.row < b.row + b.rows && b.row < a.row + a.rows && a.col < b.col + b.cols && b.col < a.col + a.cols;
}

void check_tiling(PlannedTensor& tensor) {
  std::sort(tensor.boxes.begin(), tensor.boxes.end(), [](const PlannedBox& a, const PlannedBox& b) {
    return std::tie(a.box.row, a.box.col) < std::tie(b.box.row, b.box.col);
  });
  std::int64_t covered = 0;
  for (std::size_t i = 0; i < tensor.boxes.size(); ++i) {
    const spec::Box& box = tensor.boxes[i].box;
    MEGATRON_CHECK(
        box.row >= 0 && box.col >= 0 && box.row + box.rows <= tensor.rows && box.col + box.cols <= tensor.cols,
        tensor.name, ": a box of rank ", tensor.boxes[i].rank, " leaves the tensor");
    covered += box.numel();
    // Sorted by row: only boxes that start before this one ends can meet it.
    for (std::size_t j = i + 1; j < tensor.boxes.size() && tensor.boxes[j].box.row < box.row + box.rows; ++j)
      MEGATRON_CHECK(!overlap(box, tensor.boxes[j].box), tensor.name, ": ranks ", tensor.boxes[i].rank, " and ",
                     tensor.boxes[j].rank, " both own a part");
  }
  MEGATRON_CHECK_EQ(covered, tensor.rows * tensor.cols, tensor.name, ": elements owned by some rank, and all elements");
}

std::map<std::string, PlannedTensor> decode(std::span<const std::int64_t> words,
                                            const std::vector<std::int64_t>& counts) {
  std::map<std::string, PlannedTensor> tensors;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    Decoder in(words.subspan(0, static_cast<std::size_t>(counts[rank])));
    words = words.subspan(static_cast<std::size_t>(counts[rank]));
    while (!in.done()) {
      PlannedTensor seen;
      seen.name = in.text();
      seen.dtype = static_cast<DType>(in.number());
      seen.num_dims = static_cast<int>(in.number());
      seen.rows = in.number();
      seen.cols = in.number();
      PlannedTensor& tensor = tensors.emplace(seen.name, seen).first->second;
      MEGATRON_CHECK(std::tie(tensor.dtype, tensor.num_dims, tensor.rows, tensor.cols) ==
                         std::tie(seen.dtype, seen.num_dims, seen.rows, seen.cols),
                     seen.name, ": rank ", rank, " has another shape or dtype than the ranks before it");
      for (std::int64_t left = in.number(); left > 0; --left) {
        PlannedBox box{static_cast<int>(rank), {}};
        for (std::int64_t* field : {&box.box.row, &box.box.col, &box.box.rows, &box.box.cols}) *field = in.number();
        tensor.boxes.push_back(box);
      }
    }
  }
  return tensors;
}

bool is_optimizer(const PlannedTensor& tensor) { return tensor.name.rfind("optimizer.", 0) == 0; }

std::string file_name(const char* stem, std::size_t number) {
  const std::string digits = std::to_string(number);
  return str_cat(stem, "-", std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0'), digits, ".safetensors");
}

/// Packs tensors [begin, end) into files of at most `max_file_bytes` of data.
void plan_files(WritePlan& plan, std::size_t begin, std::size_t end, const char* stem, std::int64_t max_file_bytes) {
  std::size_t number = 1;
  for (std::size_t first = begin; first < end;) {
    std::vector<TensorToWrite> members;
    std::int64_t bytes = 0;
    std::size_t last = first;
    for (; last < end && (last == first || bytes + plan.tensors[last].bytes() <= max_file_bytes); ++last) {
      const PlannedTensor& tensor = plan.tensors[last];
      bytes += tensor.bytes();
      members.push_back({tensor.name, tensor.dtype, {tensor.rows}});
      if (tensor.num_dims == 2) members.back().shape.push_back(tensor.cols);
    }
    // The key `format` is what loaders of the PyTorch world look for.
    const SafetensorsLayout layout = layout_safetensors(members, {{"format", "pt"}});
    for (std::size_t i = first; i < last; ++i) {
      plan.tensors[i].file = static_cast<int>(plan.files.size());
      plan.tensors[i].offset = layout.offsets[i - first];
    }
    plan.files.push_back({file_name(stem, number++), layout.header, layout.file_bytes});
    first = last;
  }
}

/// One writer per tensor: the rank whose share of all bytes holds the tensor's middle.
void assign_writers(std::vector<PlannedTensor>& tensors, int ranks) {
  std::int64_t total = 0;
  for (const PlannedTensor& tensor : tensors) total += tensor.bytes();
  std::int64_t before = 0;
  for (PlannedTensor& tensor : tensors) {
    const double middle = static_cast<double>(before) + 0.5 * static_cast<double>(tensor.bytes());
    const double share = total > 0 ? middle / static_cast<double>(total) : 0.0;
    tensor.writer = std::min(ranks - 1, static_cast<int>(share * ranks));
    before += tensor.bytes();
  }
}

std::vector<Panel> deal_panels(const std::vector<PlannedTensor>& tensors, int ranks, std::int64_t max_panel_bytes) {
  std::vector<std::vector<Panel>> per_writer(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const PlannedTensor& tensor = tensors[i];
    const std::int64_t step =
        std::max<std::int64_t>(1, max_panel_bytes / std::max<std::int64_t>(1, tensor.row_bytes()));
    // An empty tensor has one empty panel: its writer must still give its checksum.
    for (std::int64_t row = 0; row == 0 || row < tensor.rows; row += step)
      per_writer[static_cast<std::size_t>(tensor.writer)].push_back(
          {static_cast<int>(i), row, std::min(step, tensor.rows - row)});
  }
  std::vector<Panel> panels;
  for (std::size_t turn = 0, left = 1; left != 0; ++turn) {
    left = 0;
    for (const auto& list : per_writer)
      if (turn < list.size()) {
        panels.push_back(list[turn]);
        ++left;
      }
  }
  return panels;
}

}  // namespace

bool natural_less(const std::string& a, const std::string& b) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      std::size_t i_end = i, j_end = j;
      while (i_end < a.size() && digit(a[i_end])) ++i_end;
      while (j_end < b.size() && digit(b[j_end])) ++j_end;
      if (i_end - i != j_end - j) return i_end - i < j_end - j;
      const int order = a.compare(i, i_end - i, b, j, j_end - j);
      if (order != 0) return order < 0;
      i = i_end;
      j = j_end;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

WritePlan make_write_plan(comm::Communicator& world, std::span<const StateEntry> entries, std::int64_t max_file_bytes,
                          std::int64_t max_panel_bytes) {
  std::vector<std::int64_t> counts;
  const std::vector<std::int64_t> words = gather_words(world, encode(entries), counts);
  WritePlan plan;
  for (auto& [name, tensor] : decode(words, counts)) {
    check_tiling(tensor);
    plan.tensors.push_back(std::move(tensor));
  }
  std::sort(plan.tensors.begin(), plan.tensors.end(), [](const PlannedTensor& a, const PlannedTensor& b) {
    if (is_optimizer(a) != is_optimizer(b)) return is_optimizer(b);
    return natural_less(a.name, b.name);
  });
  const auto models = static_cast<std::size_t>(std::find_if(plan.tensors.begin(), plan.tensors.end(), is_optimizer) -
                                               plan.tensors.begin());
  plan_files(plan, 0, models, "model", max_file_bytes);
  plan_files(plan, models, plan.tensors.size(), "optimizer", max_file_bytes);
  assign_writers(plan.tensors, world.size());
  plan.panels = deal_panels(plan.tensors, world.size(), max_panel_bytes);
  return plan;
}

}  // namespace megatron::checkpoint
