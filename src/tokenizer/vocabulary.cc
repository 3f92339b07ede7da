#include "tokenizer/vocabulary.h"

#include "base/check.h"

namespace megatron::tokenizer {

std::int64_t checked_id(const JsonNode& node, std::size_t entries) {
  const std::int64_t id = node.integer();
  // Published vocabularies have gaps, but none of such a size; a table is made up to the largest id.
  const auto limit = static_cast<std::int64_t>(4 * entries + 65536);
  if (id < 0 || id >= limit)
    node.refuse(str_cat("id ", id, " is out of range: ", entries, " entries, so below ", limit));
  return id;
}

Vocabulary Vocabulary::from_object(const JsonNode& node) {
  if (!node.is_object()) node.refuse("must be an object of texts and ids");
  Vocabulary vocabulary;
  const std::size_t entries = node.size();
  vocabulary.ids_.reserve(entries);
  node.for_each_member([&](const std::string& text, const JsonNode& value) {
    const std::int64_t id = checked_id(value, entries);
    if (!vocabulary.add(text, id))
      value.refuse(str_cat("id ", id, " is given to \"", vocabulary.text(static_cast<std::size_t>(id)), "\" too"));
  });
  return vocabulary;
}

bool Vocabulary::add(std::string text, std::int64_t id) {
  const auto index = static_cast<std::size_t>(id);
  if (index < texts_.size() && texts_[index] != nullptr) return false;
  if (index >= texts_.size()) texts_.resize(index + 1);
  storage_.push_back(std::move(text));
  texts_[index] = &storage_.back();
  ids_.insert_or_assign(std::string_view(storage_.back()), static_cast<std::uint32_t>(id));
  return true;
}

}  // namespace megatron::tokenizer
