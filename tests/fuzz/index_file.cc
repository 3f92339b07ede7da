#include <cstring>
#include <vector>

#include "data/indexed_dataset.h"
#include "fuzz/promises.h"

namespace megatron::fuzz {
namespace {

void check_documents(const data::IndexedDataset& dataset) {
  std::int64_t sequences = 0, tokens = 0;
  for (std::int64_t d = 0; d < dataset.num_documents(); ++d) {
    const std::int64_t first = dataset.document_start(d), last = dataset.document_start(d + 1);
    promise(first == sequences && last >= first && last <= dataset.num_sequences(), "document ", d, " is [", first,
            ", ", last, ")");
    for (std::int64_t s = first; s < last; ++s) {
      const std::size_t size = data::is_float(dataset.type()) ? dataset.values(s).size() : dataset.get(s).size();
      promise(static_cast<std::int64_t>(size) == dataset.length(s), "sequence ", s, " has another length");
      promise(dataset.offset(s) + dataset.length(s) * data::token_type_size(dataset.type()) <=
                  static_cast<std::int64_t>(dataset.bin_bytes().size()),
              "sequence ", s, " leaves the .bin");
      if (dataset.has_modes()) dataset.mode(s);
      tokens += dataset.length(s);
    }
    sequences = last;
  }
  promise(sequences == dataset.num_sequences(), "documents hold ", sequences, " sequences");
  promise(tokens == dataset.num_tokens(), "documents hold ", tokens, " tokens of ", dataset.num_tokens());
}

}  // namespace

Outcome index_file(Bytes bytes) {
  std::uint32_t size = 0;
  if (bytes.size() < sizeof(size)) return Outcome::refused;
  std::memcpy(&size, bytes.data(), sizeof(size));
  const Bytes rest = bytes.subspan(sizeof(size));
  const std::size_t index = std::min<std::size_t>(size, rest.size());
  const megatron::testing::TemporaryFolder folder;
  write_bytes(folder / "x.idx", as_text(rest.first(index)));
  write_bytes(folder / "x.bin", as_text(rest.subspan(index)));
  try {
    const data::IndexedDataset dataset(folder / "x");
    check_documents(dataset);
    promise(data::stored_token_type(folder / "x") == dataset.type(), "the header says another type");
    if (data::is_float(dataset.type())) return Outcome::accepted;
    const auto bad = data::find_bad_token(dataset, 100, 1);
    promise(!bad || bad->id < 0 || bad->id >= 100, "a good token is called bad");
  } catch (const Error& error) {
    check_refusal(error, folder / "x");
    return Outcome::refused;
  }
  return Outcome::accepted;
}

}  // namespace megatron::fuzz
