#include "cli/command.h"

namespace megatron::cli {

const char* program_version() { return "megatron.cpp " MEGATRON_VERSION; }

}  // namespace megatron::cli
