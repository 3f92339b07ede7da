#include "nn/norm.h"

#include "support/grad_check.h"

namespace megatron {
namespace {

testing::LayerCase norm_case(spec::Normalization kind) {
  testing::LayerCase c;
  c.in_width = c.out_width = 10;
  c.make = [kind](const nn::LayerSetup& setup) {
    return testing::bind_layer<nn::Norm>(setup, std::string("norm"), spec::NormShape{kind, 10, 1e-5});
  };
  return c;
}

TEST(Norm, HasTheGradientOfWhatItComputes) {
  testing::check_layer_everywhere(norm_case(spec::Normalization::layer_norm));
  testing::check_layer_everywhere(norm_case(spec::Normalization::rms_norm));
}

TEST(Norm, SaysHowItsGradientsAreCompleted) {
  testing::run_mesh(testing::make_parallel(2), [](mesh::Rank& rank) {
    for (const bool sequence_parallel : {false, true}) {
      nn::Norm norm({rank.exec.allocator(), rank.mesh.tp, sequence_parallel, DType::float32}, "norm",
                    {spec::Normalization::layer_norm, 4, 1e-5});
      std::vector<nn::Parameter*> parameters;
      norm.collect(parameters);
      ASSERT_EQ(parameters.size(), 2U);
      for (const nn::Parameter* p : parameters) {
        EXPECT_FALSE(p->decay);
        EXPECT_EQ(p->grad_reduction, sequence_parallel ? nn::GradReduction::tensor_parallel : nn::GradReduction::none);
      }
    }
  });
}

}  // namespace
}  // namespace megatron
