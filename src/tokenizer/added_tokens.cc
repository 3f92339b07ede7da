#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/check.h"
#include "tokenizer/unicode_text.h"

namespace megatron::tokenizer {
namespace {

bool ends_with_word(std::string_view text) {
  return !text.empty() && is_word_character(character_at(text, character_before(text, text.size())).code);
}

bool starts_with_word(std::string_view text) { return !text.empty() && is_word_character(character_at(text, 0).code); }

/// Where the white space that ends before `end` begins, at or behind `limit`.
std::size_t space_begin(std::string_view text, std::size_t limit, std::size_t end) {
  while (end > limit) {
    const std::size_t before = character_before(text, end);
    if (before < limit || !is_white_space(character_at(text, before).code)) break;
    end = before;
  }
  return end;
}

std::size_t space_end(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const Character c = character_at(text, begin);
    if (!is_white_space(c.code)) break;
    begin += c.length;
  }
  return begin;
}

}  // namespace

AddedTokens::AddedTokens(const JsonNode& node, const Vocabulary& vocabulary, const Normalizer* normalizer) {
  if (node.is_null()) return;
  const std::size_t entries = vocabulary.count() + node.size();
  node.for_each_element([&](std::size_t, const JsonNode& entry) { add(entry, vocabulary, entries, normalizer); });
  raw_ = set_of(false);
  normalized_ = set_of(true);
}

void AddedTokens::add(const JsonNode& node, const Vocabulary& vocabulary, std::size_t entries,
                      const Normalizer* normalizer) {
  node.allow_only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token;
  token.content = node.required("content").string();
  const JsonNode id = node.required("id");
  token.id = checked_id(id, entries);
  token.special = node.boolean_or("special", false);
  token.single_word = node.boolean_or("single_word", false);
  token.lstrip = node.boolean_or("lstrip", false);
  token.rstrip = node.boolean_or("rstrip", false);
  token.normalized = node.boolean_or("normalized", !token.special);
  if (token.content.empty()) return;
  if (const auto known = vocabulary.find(token.content); known && *known != token.id)
    id.refuse(str_cat("id ", token.id, " for \"", token.content, "\", which has id ", *known, " in the vocabulary"));
  if (vocabulary.has(token.id) && vocabulary.text(static_cast<std::size_t>(token.id)) != token.content)
    id.refuse(str_cat("id ", token.id, " for \"", token.content, "\" belongs to \"",
                      vocabulary.text(static_cast<std::size_t>(token.id)), "\" in the vocabulary"));
  if (const AddedToken* other = find(token.id); other != nullptr && other->content != token.content)
    id.refuse(str_cat("id ", token.id, " for \"", token.content, "\" belongs to \"", other->content, "\" already"));
  token.normalized_content = token.normalized && normalizer != nullptr ? (*normalizer)(token.content) : token.content;
  if (const auto same = by_content_.find(token.content); same != by_content_.end()) {
    AddedToken& first = tokens_[same->second];
    if (first.id != token.id)
      id.refuse(str_cat("id ", token.id, " for \"", token.content, "\", which has id ", first.id, " already"));
    first = std::move(token);
    return;
  }
  by_id_[token.id] = tokens_.size();
  by_content_[token.content] = tokens_.size();
  tokens_.push_back(std::move(token));
}

AddedTokens::Set AddedTokens::set_of(bool normalized) const {
  Set set;
  std::vector<std::pair<std::string, std::int64_t>> texts;
  for (const bool special : {true, false}) {  // of equal texts the control token counts
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const AddedToken& token = tokens_[i];
      if (token.normalized != normalized || token.special != special || token.normalized_content.empty()) continue;
      texts.emplace_back(token.normalized_content, static_cast<std::int64_t>(i));
      set.only_special = set.only_special && special;
    }
  }
  set.texts = SpecialTokens(std::move(texts));
  return set;
}

const AddedToken* AddedTokens::find(std::int64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

void AddedTokens::split(std::string_view text, const Set& set, bool special, const Visit& visit) const {
  std::size_t done = 0;  // where the last token ended, with its white space
  const bool nothing = set.texts.empty() || (!special && set.only_special);
  for (std::size_t from = 0; !nothing;) {
    const auto match = set.texts.find(text, from);
    if (!match) break;
    from = match->end;
    const AddedToken& token = tokens_[static_cast<std::size_t>(match->id)];
    if (token.special && !special) continue;
    std::size_t begin = match->begin, end = match->end;
    if (token.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(space_begin(text, std::min(done, begin), begin), done);
    if (token.rstrip) end = space_end(text, end);
    if (done < begin) visit(done, begin, nullptr);
    visit(begin, end, &token);
    done = end;
  }
  if (done < text.size()) visit(done, text.size(), nullptr);
}

}  // namespace megatron::tokenizer
