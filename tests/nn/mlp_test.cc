#include "nn/mlp.h"

#include "support/grad_check.h"

namespace megatron {
namespace {

testing::LayerCase mlp_case(spec::Activation activation, bool gated, bool bias) {
  testing::LayerCase c;
  c.in_width = c.out_width = 8;
  c.make = [=](const nn::LayerSetup& setup) {
    const spec::MlpShape shape = {8, 12, gated, bias, {setup.tp.size(), setup.sequence_parallel}};
    return testing::bind_layer<nn::Mlp>(setup, std::string("mlp"), shape,
                                        nn::MlpOptions{activation, {nn::Initializer::Kind::normal, 0.1}, {}});
  };
  return c;
}

TEST(Mlp, HasTheGradientOfWhatItComputes) {
  testing::check_layer_everywhere(mlp_case(spec::Activation::gelu_tanh, false, false));
  testing::check_layer_everywhere(mlp_case(spec::Activation::gelu_erf, false, false));
  testing::check_layer_everywhere(mlp_case(spec::Activation::squared_relu, false, false));
}

TEST(Mlp, HasTheGradientOfWhatItComputesWhenGated) {
  testing::check_layer_everywhere(mlp_case(spec::Activation::silu, true, false));
  testing::check_layer_everywhere(mlp_case(spec::Activation::gelu_tanh, true, false));
  testing::check_layer_everywhere(mlp_case(spec::Activation::gelu_erf, true, false));
}

}  // namespace
}  // namespace megatron
