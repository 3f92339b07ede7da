// Data path options that name files: --data-args-path and --per-split-data-args-path.
#pragma once

#include "spec/run_spec.h"

namespace megatron::data {

/// `spec` with the lists that those files hold in place of the options. --data-args-path: words separated by blanks or
/// line ends, as --data-path takes them. --per-split-data-args-path: a JSON object with "train", "valid", "test", each
/// a list of words or one string of them. Throws IoError or ConfigError naming option and file.
spec::DataSpec resolve_data_paths(const spec::DataSpec& spec);

}  // namespace megatron::data
