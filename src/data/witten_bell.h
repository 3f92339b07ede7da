// A byte model of low order, the yardstick for small trained models: the last `order` bytes predict the next one,
// orders mixed by Witten–Bell interpolation (Witten and Bell, "The zero-frequency problem", IEEE Trans. Inf. Theory
// 37(4), 1991).
//
// p_k(c | h) = (count(h c) + types(h)·p_{k−1}(c | h′)) / (count(h) + types(h)): h = the last k bytes, h′ = the last k −
// 1, types(h) = how many different bytes have followed h; an unseen h hands over to h′. Below order 0 stands 1/256.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace megatron::data {

class WittenBell {
 public:
  /// order ≤ 7.
  explicit WittenBell(int order = 3);

  /// Counts every byte of `text` with the contexts that lie inside it.
  void train(std::string_view text);
  /// Probability of `next` after `history`, of which the last `order` bytes count (fewer at the start of a text).
  double probability(std::string_view history, unsigned char next) const;

 private:
  struct Context {
    std::uint64_t count = 0;
    std::uint64_t types = 0;
  };
  struct Level {
    std::unordered_map<std::uint64_t, Context> contexts;
    std::unordered_map<std::uint64_t, std::uint64_t> continuations;
  };
  std::vector<Level> levels_;  // [order + 1]
};

/// Trains on `trained` and scores `scored`, the text that follows it: bits per byte.
double witten_bell_bits_per_byte(std::span<const std::byte> trained, std::span<const std::byte> scored, int order = 3);
/// Trains on the first `train_fraction` of the bytes and scores the rest: bits per byte, the bytes before each as
/// history.
double witten_bell_bits_per_byte(std::string_view text, double train_fraction = 0.95, int order = 3);

}  // namespace megatron::data
