#include "config/rules.h"

#include <algorithm>

namespace megatron::config {

namespace {

/// The name stands in the text as a whole.
bool names_option(std::string_view text, std::string_view name) {
  constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyz0123456789_-";
  for (auto at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if (end == text.size() || kNameCharacters.find(text[end]) == std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

std::string mention_of(const Occurrence& o) {
  constexpr std::size_t kMost = 200;  // a written-out layout may have any length
  std::string text = o.name;
  for (const std::string& word : o.words) text += " " + (word.size() <= kMost ? word : word.substr(0, kMost) + "...");
  return str_cat(text, " (", o.origin, ")");
}

const Occurrence* RuleContext::occurrence(std::string_view name) const {
  for (const auto* list : {&input_.known, &input_.foreign}) {
    for (auto it = list->rbegin(); it != list->rend(); ++it)
      if (it->name == name) return &*it;
  }
  return nullptr;
}

bool RuleContext::user_asks(std::string_view name) const {
  const Occurrence* o = occurrence(name);
  if (o == nullptr || o->origin.rfind("preset", 0) == 0) return false;
  const Option* option = tables_.options.find(name);
  return option == nullptr || option->form != Form::set_true || o->words.empty() ||
         parse_truth(o->words.front()) == true;
}

bool RuleContext::given_unknown(std::string_view name) const {
  return std::any_of(input_.unknown.begin(), input_.unknown.end(),
                     [name](const Occurrence& o) { return key_of(o.name) == key_of(std::string(name)); });
}

std::string RuleContext::word(std::string_view name) const {
  const Occurrence* o = occurrence(name);
  return o != nullptr && !o->words.empty() ? o->words.front() : std::string();
}

std::string RuleContext::config_file() const {
  const auto found = input_.own.find("--config");
  return found == input_.own.end() ? std::string() : found->second;
}

std::string RuleContext::mention(const std::vector<std::string_view>& names) const {
  std::string text;
  for (std::string_view name : names) {
    if (!text.empty()) text += ", ";
    if (const Occurrence* o = occurrence(name)) {
      text += mention_of(*o);
      continue;
    }
    text += name;
    const Option* option = tables_.options.find(name);
    const std::string shown = option != nullptr && option->type != Type::truth ? option->show(draft_) : "";
    if (shown.empty() || shown == "0" || !option->has_default) continue;
    text += str_cat(" ", shown, shown == option->show(Draft()) ? " (default)" : " (derived)");
  }
  return text;
}

void RuleContext::add(std::vector<std::string>& list, const std::vector<std::string_view>& names,
                      const std::string& text) {
  const auto speaks_of = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end() || names_option(text, name);
  };
  if (std::any_of(findings_.untaken.begin(), findings_.untaken.end(), speaks_of)) return;
  list.push_back(str_cat(mention(names), ": ", text));
}

void RuleContext::error(const std::vector<std::string_view>& names, const std::string& text) {
  add(findings_.errors, names, text);
}

void RuleContext::refuse(std::initializer_list<std::string_view> names, const std::string& text) {
  add(findings_.refused, names, text);
}

void RuleContext::exclusive(std::string_view a, std::string_view b) {
  findings_.errors.push_back(str_cat(mention({a, b}), ": ", a, " and ", b, " exclude each other"));
}

void RuleContext::required(std::string_view name, const std::string& why) {
  if (given(name)) return;  // with a value that was refused
  findings_.errors.push_back(str_cat(name, " is required", why.empty() ? "" : ": ", why));
}

void RuleContext::not_built(std::initializer_list<std::string_view> names, const std::string& text) {
  add(findings_.not_built, names, text);
}

}  // namespace megatron::config
