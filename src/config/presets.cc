#include "config/presets.h"

#include <iterator>

namespace megatron::config {
namespace {

std::vector<std::string> gpt2(const std::string& layers, const std::string& hidden, const std::string& heads,
                              const std::string& length) {
  return {"--num-layers",
          layers,
          "--hidden-size",
          hidden,
          "--num-attention-heads",
          heads,
          "--seq-length",
          length,
          "--max-position-embeddings",
          length};
}

}  // namespace

std::vector<Preset> presets() {
  std::vector<std::string> llama_tiny = gpt2("4", "256", "4", "256");
  const std::vector<std::string> llama = {"--normalization",
                                          "RMSNorm",
                                          "--swiglu",
                                          "--disable-bias-linear",
                                          "--position-embedding-type",
                                          "rope",
                                          "--untie-embeddings-and-output-weights"};
  llama_tiny.insert(llama_tiny.end(), llama.begin(), llama.end());
  auto sized = [](std::vector<std::string> args, const std::string& vocabulary, const std::string& micro_batch) {
    args.insert(args.end(), {"--vocab-size", vocabulary, "--micro-batch-size", micro_batch});
    return args;
  };
  return {
      {"gpt2-124m", "GPT-2 with 124 million weights, 256 tokens", sized(gpt2("12", "768", "12", "256"), "50304", "4")},
      {"gpt2-124m-s1024", "the same with 1024 tokens", sized(gpt2("12", "768", "12", "1024"), "50304", "1")},
      {"tiny", "GPT with 4 layers of 256, for trying things out", sized(gpt2("4", "256", "4", "256"), "8192", "4")},
      {"tiny-llama", "Llama with 4 layers of 256", sized(llama_tiny, "8192", "4")}};
}

}  // namespace megatron::config
