// The optimizer and its schedules.
#pragma once

#include <cstdint>
#include <optional>

namespace megatron::spec {

enum class OptimizerKind : std::uint8_t { adam, sgd, lion, muon };
enum class DecayStyle : std::uint8_t { constant, linear, cosine, inverse_square_root, wsd };
enum class WsdDecayStyle : std::uint8_t { exponential, linear, cosine, minus_sqrt };
enum class WeightDecayStyle : std::uint8_t { constant, linear, cosine };

/// Factor of an orthogonalised update: √max(out, in), √(out/in), √max(1, out/in).
enum class MuonScaleMode : std::uint8_t { spectral, unit_rms_norm, shape_scaling };
/// Coefficients of the Newton–Schulz iteration, by Megatron's names.
enum class MuonCoefficients : std::uint8_t { simple, quintic, polar_express, aol };
/// Where tensor-parallel ranks cut a matrix: each part by itself; the whole matrix on every rank; the work on it
/// shared.
enum class MuonTpMode : std::uint8_t { blockwise, duplicated, distributed };

/// Muon: matrices but embedding tables and the head; `scalar_optimizer` (adam or lion) updates the rest.
struct MuonSpec {
  double momentum = 0.9;
  bool nesterov = false;
  bool split_qkv = true;
  MuonScaleMode scale_mode = MuonScaleMode::spectral;
  double extra_scale_factor = 1.0;
  MuonCoefficients coefficients = MuonCoefficients::quintic;
  std::int64_t num_ns_steps = 5;
  MuonTpMode tp_mode = MuonTpMode::duplicated;
  OptimizerKind scalar_optimizer = OptimizerKind::adam;
};

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::adam;
  std::optional<double> lr;
  double min_lr = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double sgd_momentum = 0.9;
  bool sgd_nesterov = false;
  double lion_beta1 = 0.95, lion_beta2 = 0.98;
  MuonSpec muon;
  double weight_decay = 0.01;
  bool decoupled_weight_decay = true;  // Adam: AdamW; else the decay is added to the gradient
  bool apply_wd_to_qk_layernorm = false;
  double clip_grad = 1.0;  // 0: off

  DecayStyle lr_decay_style = DecayStyle::linear;
  WsdDecayStyle lr_wsd_decay_style = WsdDecayStyle::exponential;
  std::optional<std::int64_t> lr_decay_iters, lr_decay_samples;
  std::optional<std::int64_t> lr_wsd_decay_iters, lr_wsd_decay_samples;
  std::optional<double> lr_warmup_fraction;
  std::int64_t lr_warmup_iters = 0, lr_warmup_samples = 0;
  double lr_warmup_init = 0.0;
  std::optional<double> start_weight_decay, end_weight_decay;
  WeightDecayStyle weight_decay_incr_style = WeightDecayStyle::constant;
  bool override_opt_param_scheduler = false;
  bool use_checkpoint_opt_param_scheduler = false;
};

}  // namespace megatron::spec
