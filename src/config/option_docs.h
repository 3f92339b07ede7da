// The option table as text: for `megatron options`, and as Markdown for the documentation.
#pragma once

#include <string>

namespace megatron::config {

std::string options_text();
std::string options_markdown();

}  // namespace megatron::config
