// Channels around channels, for tests and --inject-fault: faults, and random yields that perturb the schedule.
#pragma once

#include <memory>
#include <string>

#include "comm/rank_core.h"
#include "comm/request.h"

namespace megatron::comm {

/// Wraps `inner` in what the rank's options ask for; most often nothing.
std::unique_ptr<Channel> decorate(std::unique_ptr<Channel> inner, RankCore& core, const std::string& group, int size);

}  // namespace megatron::comm
