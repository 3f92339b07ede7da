#include "nn/parameter.h"

#include <algorithm>

namespace megatron::nn {

bool shares_table(const Parameter& use, std::span<Parameter* const> parameters) {
  return use.tied_use && std::any_of(parameters.begin(), parameters.end(), [&](const Parameter* other) {
           return !other->tied_use && other->name == use.name;
         });
}

}  // namespace megatron::nn
