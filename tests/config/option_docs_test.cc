#include "config/option_docs.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace megatron::config {
namespace {

TEST(OptionDocs, CommittedFileIsWhatTheTableSays) {
  std::ifstream file(MEGATRON_SOURCE_DIR "/docs/options.md");
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == options_markdown()) << "write it again: megatron options --markdown > docs/options.md";
}

TEST(OptionDocs, SaysWhatDiffersFromMegatron) {
  for (const std::string& text : {options_text(), options_markdown()}) {
    for (const char* word : {"--calculate-per-token-loss", "softmax", "SIGTERM", "float32"})
      EXPECT_NE(text.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace megatron::config
