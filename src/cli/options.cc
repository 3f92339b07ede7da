// megatron options: the option table.
#include <cstdio>

#include "base/check.h"
#include "cli/command.h"
#include "config/option_docs.h"

namespace megatron::cli {

int run_options(Arguments args) {
  bool markdown = false;
  for (const std::string& arg : args) {
    if (arg != "--markdown") throw ConfigError(str_cat("options ", arg, ": unknown; known is --markdown"));
    markdown = true;
  }
  std::fputs((markdown ? config::options_markdown() : config::options_text()).c_str(), stdout);
  return 0;
}

}  // namespace megatron::cli
