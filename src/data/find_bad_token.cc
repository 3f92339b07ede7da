#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/check.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "data/indexed_dataset.h"

namespace megatron::data {
namespace {

constexpr std::int64_t kChunkTokens = 1 << 20;
constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

/// Index of the first id outside [0, vocab_size) among `count` ids, or −1.
template <typename T>
std::int64_t first_outside(const std::byte* bytes, std::int64_t count, std::int64_t vocab_size) {
  // Negative ids are large as unsigned numbers of the same width.
  using Unsigned = std::make_unsigned_t<T>;
  const auto limit =
      std::min(static_cast<std::uint64_t>(vocab_size), static_cast<std::uint64_t>(std::numeric_limits<T>::max()) + 1);
  if (limit > std::numeric_limits<Unsigned>::max()) return -1;
  const auto at = [bytes](std::int64_t i) {
    Unsigned value;
    std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
  };
  constexpr std::int64_t kBlock = 1024;
  std::int64_t start = 0;
  for (; start + kBlock <= count; start += kBlock) {
    Unsigned highest = 0;
    for (std::int64_t i = 0; i < kBlock; ++i) highest = std::max(highest, at(start + i));
    if (highest >= limit) break;
  }
  for (std::int64_t i = start; i < count; ++i)
    if (at(i) >= limit) return i;
  return -1;
}

std::int64_t first_outside(TokenType type, const std::byte* bytes, std::int64_t count, std::int64_t vocab_size) {
  switch (type) {
    case TokenType::uint8:
      return first_outside<std::uint8_t>(bytes, count, vocab_size);
    case TokenType::int8:
      return first_outside<std::int8_t>(bytes, count, vocab_size);
    case TokenType::int16:
      return first_outside<std::int16_t>(bytes, count, vocab_size);
    case TokenType::int32:
      return first_outside<std::int32_t>(bytes, count, vocab_size);
    case TokenType::int64:
      return first_outside<std::int64_t>(bytes, count, vocab_size);
    case TokenType::uint16:
      return first_outside<std::uint16_t>(bytes, count, vocab_size);
    case TokenType::float64:
    case TokenType::float32:
      break;
  }
  return -1;
}

/// Largest i in [0, count) with start(i) ≤ value, for ascending starts with start(0) ≤ value.
template <typename Start>
std::int64_t last_at_or_before(std::int64_t count, std::int64_t value, Start&& start) {
  std::int64_t low = 0, high = count;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (start(middle) <= value ? low : high) = middle;
  }
  return low;
}

BadToken describe(const IndexedDataset& dataset, std::int64_t token) {
  const std::int64_t size = token_type_size(dataset.type());
  BadToken bad;
  bad.sequence =
      last_at_or_before(dataset.num_sequences(), token * size, [&](std::int64_t i) { return dataset.offset(i); });
  bad.document = last_at_or_before(dataset.num_documents(), bad.sequence,
                                   [&](std::int64_t d) { return dataset.document_start(d); });
  bad.position = token - dataset.offset(dataset.document_start(bad.document)) / size;
  bad.id = dataset.get(bad.sequence, token - dataset.offset(bad.sequence) / size, 1)[0];
  return bad;
}

}  // namespace

std::optional<BadToken> find_bad_token(const IndexedDataset& dataset, std::int64_t vocab_size, int num_threads) {
  MEGATRON_CHECK_GT(vocab_size, 0);
  MEGATRON_CHECK(!is_float(dataset.type()), dataset.prefix(), ": holds no ids");
  const std::int64_t tokens = dataset.num_tokens(), size = token_type_size(dataset.type());
  const std::int64_t chunks = ceil_div(tokens, kChunkTokens);
  std::atomic<std::int64_t> first{kNone};
  ThreadPool pool(static_cast<int>(std::clamp<std::int64_t>(chunks, 1, std::max(num_threads, 1))), /*spin=*/0);
  pool.parallel_for(chunks, [&](std::int64_t chunk, int) {
    const std::int64_t start = chunk * kChunkTokens;
    if (start > first.load(std::memory_order_relaxed)) return;
    const std::int64_t found = first_outside(dataset.type(), dataset.bin_bytes().data() + start * size,
                                             std::min(kChunkTokens, tokens - start), vocab_size);
    if (found < 0) return;
    std::int64_t known = first.load();
    while (start + found < known && !first.compare_exchange_weak(known, start + found)) {
    }
  });
  if (first.load() == kNone) return {};
  return describe(dataset, first.load());
}

}  // namespace megatron::data
