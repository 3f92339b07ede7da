// The option table as text: for `megatron options`, and as Markdown for the documentation.
#pragma once

#include <string>

namespace megatron::config {

/// The rows of the table and the presets.
std::string option_table_text();
/// The same, what differs from Megatron-LM, and its options without a row.
std::string options_text();
std::string options_markdown();

}  // namespace megatron::config
