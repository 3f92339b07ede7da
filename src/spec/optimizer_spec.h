// The optimizer and its schedules.
#pragma once

#include <cstdint>
#include <optional>

namespace megatron::spec {

enum class OptimizerKind : std::uint8_t { adam, sgd };
enum class DecayStyle : std::uint8_t { constant, linear, cosine, inverse_square_root, wsd };
enum class WsdDecayStyle : std::uint8_t { exponential, linear, cosine, minus_sqrt };
enum class WeightDecayStyle : std::uint8_t { constant, linear, cosine };

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::adam;
  std::optional<double> lr;
  double min_lr = 0.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double sgd_momentum = 0.9;
  double weight_decay = 0.01;
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
