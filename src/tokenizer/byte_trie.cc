#include "tokenizer/byte_trie.h"

#include "base/check.h"

namespace megatron::tokenizer {

void ByteTrie::grow() {
  std::vector<Slot> old(slots_.empty() ? 64 : slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& entry : old) {
    if (entry.key == kEmpty) continue;
    std::size_t slot = home(entry.key);
    while (slots_[slot].key != kEmpty) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = entry;
  }
}

std::uint32_t ByteTrie::make_step(std::uint32_t node, unsigned char byte) {
  const std::uint32_t found = step(node, byte);
  if (found != kNone) return found;
  if (values_.size() >= kMostNodes) throw ConfigError("the pieces of a vocabulary have too many beginnings (2^24)");
  const auto made = static_cast<std::uint32_t>(values_.size());
  values_.push_back(kNone);
  if (node == kRoot) return first_[byte] = made;
  if (values_.size() * 2 >= slots_.size()) grow();
  const std::uint32_t key = node << 8 | byte;
  std::size_t slot = home(key);
  while (slots_[slot].key != kEmpty) slot = (slot + 1) & (slots_.size() - 1);
  slots_[slot] = {key, made};
  return made;
}

void ByteTrie::add(std::string_view key, std::uint32_t value) {
  MEGATRON_CHECK(!key.empty());
  std::uint32_t node = kRoot;
  for (const char c : key) node = make_step(node, static_cast<unsigned char>(c));
  values_[node] = value;
}

std::uint32_t ByteTrie::walk(std::string_view text) const {
  std::uint32_t node = kRoot;
  for (const char c : text) {
    node = step(node, static_cast<unsigned char>(c));
    if (node == kNone) return kNone;
  }
  return node;
}

}  // namespace megatron::tokenizer
