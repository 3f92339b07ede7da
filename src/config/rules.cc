#include "config/rules.h"

#include <algorithm>

namespace megatron::config {

std::string mention_of(const Occurrence& o) {
  std::string text = o.name;
  for (const std::string& word : o.words) text += " " + word;
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

std::string RuleContext::mention(std::initializer_list<std::string_view> names) const {
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
    if (shown.empty() || shown == "0") continue;
    text += str_cat(" ", shown, shown == option->show(Draft()) ? " (default)" : " (derived)");
  }
  return text;
}

void RuleContext::error(std::initializer_list<std::string_view> names, const std::string& text) {
  findings_.errors.push_back(str_cat(mention(names), ": ", text));
}

void RuleContext::required(std::string_view name, const std::string& why) {
  if (given(name)) return;  // with a value that was refused
  findings_.errors.push_back(str_cat(name, " is required", why.empty() ? "" : ": ", why));
}

void RuleContext::not_built(std::initializer_list<std::string_view> names, const std::string& text) {
  findings_.not_built.push_back(str_cat(mention(names), ": ", text));
}

}  // namespace megatron::config
