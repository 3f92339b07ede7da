#include "nn/attention/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace megatron::nn {
namespace {

double scaled_frequency(double frequency, const spec::RopeScaling& scaling) {
  const double original = static_cast<double>(scaling.original_length);
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < original / scaling.high_freq_factor) return frequency;
  if (wavelength > original / scaling.low_freq_factor) return frequency / scaling.factor;
  const double smooth =
      (original / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1.0 - smooth) * frequency / scaling.factor + smooth * frequency;
}

template <typename T>
void fill(RopeTable& table, const std::vector<double>& frequencies, double interpolation) {
  const std::int64_t positions = table.cos.size(0), pairs = table.cos.size(1);
  T* cos = table.cos.data<T>();
  T* sin = table.sin.data<T>();
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(p) / interpolation * frequencies[static_cast<std::size_t>(i)];
      cos[p * pairs + i] = static_cast<T>(std::cos(angle));
      sin[p * pairs + i] = static_cast<T>(std::sin(angle));
    }
}

}  // namespace

std::vector<double> rope_frequencies(const spec::ModelSpec& model) {
  const auto rotating = static_cast<std::int64_t>(static_cast<double>(model.kv_channels) * model.rotary_percent);
  MEGATRON_CHECK(rotating >= 2 && rotating % 2 == 0, "rotary embedding of ", rotating, " features of a head");
  std::vector<double> frequencies(static_cast<std::size_t>(rotating / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(rotating);
    frequencies[i] = std::pow(model.rotary_base, -exponent);
    if (model.rope_scaling.has_value()) frequencies[i] = scaled_frequency(frequencies[i], *model.rope_scaling);
  }
  return frequencies;
}

RopeTable make_rope_table(tensor::Allocator& allocator, const spec::ModelSpec& model, DType dtype) {
  const std::vector<double> frequencies = rope_frequencies(model);
  const std::int64_t positions = std::max(model.seq_length, model.max_position_embeddings);
  const Shape shape = {positions, static_cast<std::int64_t>(frequencies.size())};
  RopeTable table;
  table.interleaved = model.rotary_interleaved;
  table.cos = Tensor::empty(allocator, shape, dtype, MemoryKind::data);
  table.sin = Tensor::empty(allocator, shape, dtype, MemoryKind::data);
  if (table.cos.is_meta()) return table;
  if (dtype == DType::float64)
    fill<double>(table, frequencies, model.rotary_seq_len_interpolation_factor);
  else
    fill<float>(table, frequencies, model.rotary_seq_len_interpolation_factor);
  return table;
}

}  // namespace megatron::nn
