#include "config/presets.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace megatron::config {
namespace {

struct Size {
  const char* name;
  const char* help;
  int layers, hidden, heads, vocabulary, length, micro_batch;
};

constexpr Size kSizes[] = {
    {"gpt2-124m", "GPT-2 with 124 million weights, 256 tokens", 12, 768, 12, 50304, 256, 4},
    {"gpt2-124m-s1024", "the same with 1024 tokens", 12, 768, 12, 50304, 1024, 1},
    {"tiny", "GPT with 4 layers of 256, for trying things out", 4, 256, 4, 8192, 256, 4},
};

void add(std::vector<std::string>& args, const char* name, int value) {
  args.emplace_back(name);
  args.push_back(std::to_string(value));
}

std::vector<std::string> gpt2(const Size& size) {
  std::vector<std::string> args;
  add(args, "--num-layers", size.layers);
  add(args, "--hidden-size", size.hidden);
  add(args, "--num-attention-heads", size.heads);
  add(args, "--seq-length", size.length);
  add(args, "--vocab-size", size.vocabulary);
  add(args, "--micro-batch-size", size.micro_batch);
  return args;
}

/// The same size in Llama's form: half as many key/value heads, a gated MLP of 8/3 hidden, rounded up to 64.
std::vector<std::string> llama(const Size& size) {
  std::vector<std::string> args = gpt2(size);
  for (const char* word : {"--normalization", "RMSNorm", "--position-embedding-type", "rope", "--swiglu",
                           "--disable-bias-linear", "--untie-embeddings-and-output-weights", "--group-query-attention"})
    args.emplace_back(word);
  add(args, "--num-query-groups", std::max(1, size.heads / 2));
  add(args, "--ffn-hidden-size", (8 * size.hidden + 191) / 192 * 64);
  return args;
}

}  // namespace

std::vector<Preset> presets() {
  std::vector<Preset> list;
  for (const Size& size : kSizes) list.push_back({size.name, size.help, gpt2(size)});
  list.push_back({"tiny-llama", "Llama with 4 layers of 256", llama(kSizes[2])});
  return list;
}

std::vector<std::string> preset_args(const std::string& name, const std::string& architecture) {
  const auto* const size =
      std::find_if(std::begin(kSizes), std::end(kSizes), [&](const Size& s) { return name == s.name; });
  if (size == std::end(kSizes)) throw ConfigError("--preset " + name + ": known are gpt2-124m, gpt2-124m-s1024, tiny");
  if (architecture == "gpt2") return gpt2(*size);
  if (architecture == "llama") return llama(*size);
  throw ConfigError("--arch " + architecture + ": known are gpt2, llama");
}

}  // namespace megatron::config
