// The texts of all ids of a tokenizer file, in both directions. Immutable once filled, shared by threads.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/json_node.h"

namespace megatron::tokenizer {

class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  /// Reads {"text": id, ...}. Refuses ids that are negative, given twice, or far above the number of entries.
  static Vocabulary from_object(const JsonNode& node);

  /// Of equal texts the last id counts. False if the id has a text already.
  bool add(std::string text, std::int64_t id);

  std::optional<std::uint32_t> find(std::string_view text) const {
    const auto found = ids_.find(text);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
  }
  /// The largest id + 1.
  std::size_t size() const { return texts_.size(); }
  /// How many ids have a text.
  std::size_t count() const { return storage_.size(); }
  bool has(std::int64_t id) const {
    return id >= 0 && id < static_cast<std::int64_t>(texts_.size()) && texts_[static_cast<std::size_t>(id)] != nullptr;
  }
  /// Empty for an id without text.
  std::string_view text(std::size_t id) const { return texts_[id] == nullptr ? std::string_view() : *texts_[id]; }

 private:
  std::deque<std::string> storage_;
  std::vector<const std::string*> texts_;
  std::unordered_map<std::string_view, std::uint32_t> ids_;
};

/// Refuses an id that is negative or so far above `entries` that it must be damage.
std::int64_t checked_id(const JsonNode& node, std::size_t entries);

}  // namespace megatron::tokenizer
