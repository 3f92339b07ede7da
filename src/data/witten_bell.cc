#include "data/witten_bell.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"

namespace megatron::data {
namespace {

/// The last `length` bytes before `end`, packed; levels have maps of their own, so lengths need not be told apart.
std::uint64_t pack(std::string_view text, std::size_t end, std::size_t length) {
  std::uint64_t key = 0;
  for (std::size_t i = end - length; i < end; ++i) key = key << 8 | static_cast<unsigned char>(text[i]);
  return key;
}

std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

WittenBell::WittenBell(int order) : levels_(static_cast<std::size_t>(order) + 1) {
  MEGATRON_CHECK(order >= 0 && order <= 7, "order ", order);
}

void WittenBell::train(std::string_view text) {
  for (std::size_t length = 0; length < levels_.size(); ++length) {
    Level& level = levels_[length];
    for (std::size_t at = length; at < text.size(); ++at) {
      const std::uint64_t history = pack(text, at, length);
      Context& context = level.contexts[history];
      ++context.count;
      if (++level.continuations[history << 8 | static_cast<unsigned char>(text[at])] == 1) ++context.types;
    }
  }
}

double WittenBell::probability(std::string_view history, unsigned char next) const {
  double p = 1.0 / 256.0;
  for (std::size_t length = 0; length < levels_.size() && length <= history.size(); ++length) {
    const Level& level = levels_[length];
    const std::uint64_t key = pack(history, history.size(), length);
    const auto context = level.contexts.find(key);
    if (context == level.contexts.end()) break;  // no longer history has been seen either
    const auto seen = level.continuations.find(key << 8 | next);
    const auto count = seen == level.continuations.end() ? 0.0 : static_cast<double>(seen->second);
    const auto types = static_cast<double>(context->second.types);
    p = (count + types * p) / (static_cast<double>(context->second.count) + types);
  }
  return p;
}

double witten_bell_bits_per_byte(std::span<const std::byte> trained, std::span<const std::byte> scored, int order) {
  MEGATRON_CHECK(!scored.empty(), "nothing is left to score");
  WittenBell model(order);
  model.train(as_text(trained));
  // The first scored bytes follow the last trained ones.
  const auto overlap = std::min(trained.size(), static_cast<std::size_t>(order));
  const std::string text = as_text(trained.last(overlap)) + as_text(scored);
  double bits = 0.0;
  for (std::size_t at = overlap; at < text.size(); ++at) {
    const std::size_t from = at - std::min(at, static_cast<std::size_t>(order));
    const std::string_view history = std::string_view(text).substr(from, at - from);
    bits -= std::log2(model.probability(history, static_cast<unsigned char>(text[at])));
  }
  return bits / static_cast<double>(scored.size());
}

double witten_bell_bits_per_byte(std::string_view text, double train_fraction, int order) {
  MEGATRON_CHECK(train_fraction >= 0.0 && train_fraction <= 1.0, "fraction ", train_fraction);
  const auto trained = static_cast<std::size_t>(train_fraction * static_cast<double>(text.size()));
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return witten_bell_bits_per_byte(bytes.first(trained), bytes.subspan(trained), order);
}

}  // namespace megatron::data
