// Does a resumed run read the data of the run that wrote the checkpoint?
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/run_spec.h"

namespace megatron::train {

/// One line per difference in what decides which samples a run sees (data, split, seed, order): the option, what it was
/// and is, and that the run goes on at sample `consumed` of the new order. With a weighted --data-path before, also how
/// many samples each file had given (up to 2²⁶ in all). Empty where `stored` does not know its data (old checkpoints)
/// or all is the same.
std::vector<std::string> data_differences(const spec::RunSpec& stored, const spec::RunSpec& run, std::int64_t consumed);

}  // namespace megatron::train
