// Losses and gradients of two tiny models by PyTorch in double; written by make_pytorch_numbers.py.
#pragma once

#include <string>
#include <vector>

namespace megatron::testing {

struct GradientNumbers {
  std::string name;
  double norm;  // of the gradient
  double wave;  // its sum weighted by cos(0.37·i)
};

struct PytorchNumbers {
  std::vector<double> losses;              // of each token, unmasked
  std::vector<GradientNumbers> gradients;  // of the sum of mask·loss, in the order of k
};

inline const PytorchNumbers kGpt = {
    {2.6430618386999836, 5.1146461920837387, 1.861346442414139, 1.6114328813016718, 4.2406164418121071,
     3.7804743866680504, 2.4423975265942968, 1.4775952200377698, 2.9534619385833087, 3.8956428195996127,
     1.8396755736644388, 2.1120125799334111},
    {
        {"embedding.word_embeddings.weight", 20.110746552653154, -3.0943029766738546},
        {"embedding.position_embeddings.weight", 16.437913360176413, 14.783653335412613},
        {"decoder.layers.0.input_layernorm.weight", 0.32353981064910442, -0.077021404249324854},
        {"decoder.layers.0.input_layernorm.bias", 0.1247206050272609, -0.052923537309013821},
        {"decoder.layers.0.self_attention.linear_qkv.weight", 1.8125234872004317, 1.1570897509281692},
        {"decoder.layers.0.self_attention.linear_qkv.bias", 0.23138169868898822, 0.16034989244872358},
        {"decoder.layers.0.self_attention.linear_proj.weight", 15.31447410653772, -0.44170696077932947},
        {"decoder.layers.0.self_attention.linear_proj.bias", 1.0833172705311476, -0.026701205884824247},
        {"decoder.layers.0.pre_mlp_layernorm.weight", 0.17046225519304087, 0.028998100039125674},
        {"decoder.layers.0.pre_mlp_layernorm.bias", 0.098282151176227059, -0.08228163836145265},
        {"decoder.layers.0.mlp.linear_fc1.weight", 2.4194522502091598, 0.55609108208616598},
        {"decoder.layers.0.mlp.linear_fc1.bias", 0.46792634179560832, 0.20847065103718659},
        {"decoder.layers.0.mlp.linear_fc2.weight", 1.5644412060558546, 0.067204864422560795},
        {"decoder.layers.0.mlp.linear_fc2.bias", 1.0451673140985731, 0.037901327477482191},
        {"decoder.layers.1.input_layernorm.weight", 0.14092529992064687, -0.0014338308512393122},
        {"decoder.layers.1.input_layernorm.bias", 0.15466298372738524, 0.094938633954039398},
        {"decoder.layers.1.self_attention.linear_qkv.weight", 0.68305074252892084, -0.11209428929077996},
        {"decoder.layers.1.self_attention.linear_qkv.bias", 0.25576647488426618, -0.068543361039085676},
        {"decoder.layers.1.self_attention.linear_proj.weight", 1.5152421423554554, -0.19639038274412018},
        {"decoder.layers.1.self_attention.linear_proj.bias", 1.0863374169285642, -0.0062485221973602595},
        {"decoder.layers.1.pre_mlp_layernorm.weight", 0.17549997281699198, 0.099828121985440776},
        {"decoder.layers.1.pre_mlp_layernorm.bias", 0.13944901546296445, 0.1399319508392366},
        {"decoder.layers.1.mlp.linear_fc1.weight", 2.3984588061671808, -0.11846468311050218},
        {"decoder.layers.1.mlp.linear_fc1.bias", 0.38243538686491113, -0.17937886831898583},
        {"decoder.layers.1.mlp.linear_fc2.weight", 1.8866073250169071, 0.18062604411742383},
        {"decoder.layers.1.mlp.linear_fc2.bias", 1.049022043589513, -0.083235702472159723},
        {"decoder.final_layernorm.weight", 2.4984442505660054, 0.61122289319649681},
        {"decoder.final_layernorm.bias", 1.9757009259163456, 0.030775795804549699},
    }};

inline const PytorchNumbers kLlama = {
    {2.2739197715012383, 2.352080887309365, 2.1111641211374153, 3.2214214877185436, 2.3656090705795165,
     1.8411686146070749, 2.3961112513744478, 2.0073646891584578, 3.4941909309638621, 2.4550250645479261,
     3.332739348195628, 2.5148950358716173},
    {
        {"embedding.word_embeddings.weight", 3.2691766247510103, 2.2808433224351479},
        {"decoder.layers.0.input_layernorm.weight", 0.65124215150960418, -0.28290385806712209},
        {"decoder.layers.0.self_attention.linear_qkv.weight", 15.156541980796575, -9.3369680161770585},
        {"decoder.layers.0.self_attention.q_layernorm.weight", 0.90222303286735861, 1.3706228403125851},
        {"decoder.layers.0.self_attention.k_layernorm.weight", 0.89539446567050107, 0.66307318781633506},
        {"decoder.layers.0.self_attention.linear_proj.weight", 25.022849057714708, 3.1856588775684846},
        {"decoder.layers.0.pre_mlp_layernorm.weight", 1.6726847755632104, -0.38468862321654829},
        {"decoder.layers.0.mlp.linear_fc1.weight", 8.4494423406081776, -0.2936455169690082},
        {"decoder.layers.0.mlp.linear_fc2.weight", 31.424374930587284, 23.101253846298253},
        {"decoder.layers.1.input_layernorm.weight", 0.16033803994550619, -0.093196561770683861},
        {"decoder.layers.1.self_attention.linear_qkv.weight", 1.8184150566237001, 0.35666355152458706},
        {"decoder.layers.1.self_attention.q_layernorm.weight", 0.054244828693162064, 0.016330784905033247},
        {"decoder.layers.1.self_attention.k_layernorm.weight", 0.046525692464725731, 0.020624217780819579},
        {"decoder.layers.1.self_attention.linear_proj.weight", 5.0291286745751913, 0.63615105195981858},
        {"decoder.layers.1.pre_mlp_layernorm.weight", 0.17920941620490852, 0.061938949108755477},
        {"decoder.layers.1.mlp.linear_fc1.weight", 3.2015442404467094, -0.12660103355229987},
        {"decoder.layers.1.mlp.linear_fc2.weight", 3.5647583801190721, 0.31983918575260428},
        {"decoder.final_layernorm.weight", 3.66297900706294, -0.13741397802288019},
        {"output_layer.weight", 10.658292216539431, 2.7440978911192504},
    }};

}  // namespace megatron::testing
