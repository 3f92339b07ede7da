#include "config/foreign_options.h"

#include <algorithm>

#include "base/check.h"
#include "config/option.h"

namespace megatron::config {
namespace {

constexpr std::string_view kForeignText =
#include "config/foreign_options.txt"
    ;
constexpr std::string_view kFormerText =
#include "config/former_options.txt"
    ;

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

template <typename Visit>
void for_each_line(std::string_view text, Visit visit) {
  for (const std::string& line : split(text, '\n'))
    if (!line.empty() && line[0] != '#') visit(std::string_view(line));
}

/// Cuts the first word off.
std::string_view take_word(std::string_view& line) {
  const auto space = line.find(' ');
  const std::string_view word = line.substr(0, space);
  line.remove_prefix(space == std::string_view::npos ? line.size() : space + 1);
  return word;
}

void read_form(std::string_view form, ForeignOption& o) {
  if (const auto equals = form.find('='); equals != std::string_view::npos) {
    o.harmless = form.substr(equals + 1);
    form = form.substr(0, equals);
  }
  if (form[0] == '0' || form[0] == 'b') {
    o.is_switch = true;
    o.has_twin = form[0] == 'b';
    o.is_negated = form.size() > 1;
    if (o.is_negated) o.key = form.substr(2);
    return;
  }
  o.min_values = form[0] == '*' ? 0 : form[0] == '+' ? 1 : form[0] - '0';
  o.max_values = form[0] == '*' || form[0] == '+' ? -1 : form[0] - '0';
  const std::string_view type = form.substr(2);
  if (type[0] == '{') {
    o.type = "text";
    o.choices = split(type.substr(1, type.size() - 2), ',');
  } else {
    o.type = type;
  }
}

ForeignOption read_line(std::string_view line) {
  ForeignOption o;
  o.names = split(take_word(line), ',');
  o.key = key_of(o.names.front());
  read_form(take_word(line), o);
  const std::string_view kind = take_word(line);
  o.kind = kind == "no_effect" ? ForeignClass::no_effect
           : kind == "removed" ? ForeignClass::removed
                               : ForeignClass::refused;
  const auto bar = line.find(" | ");
  o.reason = line.substr(0, bar);
  if (bar != std::string_view::npos) o.instead = line.substr(bar + 3);
  return o;
}

std::string dashed(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

}  // namespace

ForeignOptions::ForeignOptions() {
  for_each_line(kForeignText, [this](std::string_view line) { options_.push_back(read_line(line)); });
}

const ForeignOption* ForeignOptions::find(std::string_view name) const {
  for (const ForeignOption& o : options_) {
    if (std::find(o.names.begin(), o.names.end(), name) != o.names.end()) return &o;
    if (o.has_twin && name == "--no-" + o.names.front().substr(2)) return &o;
  }
  return nullptr;
}

const ForeignOption* ForeignOptions::find_key(std::string_view key, bool& negated) const {
  for (const ForeignOption& o : options_) {
    negated = o.is_negated && o.key == key;
    if (o.key == key) return &o;
    for (const std::string& name : o.names)
      if (key_of(name) == key) return &o;
  }
  negated = false;
  return nullptr;
}

std::vector<std::string> ForeignOptions::names() const {
  std::vector<std::string> names;
  for (const ForeignOption& o : options_) {
    names.insert(names.end(), o.names.begin(), o.names.end());
    if (o.has_twin) names.push_back("--no-" + o.names.front().substr(2));
  }
  return names;
}

std::string former_option_hint(std::string_view name) {
  std::string hint;
  for_each_line(kFormerText, [&](std::string_view line) {
    if (dashed(take_word(line)) == dashed(name)) hint = line;
  });
  return hint;
}

std::string check_foreign_values(const ForeignOption& o, const std::vector<std::string>& words) {
  if (o.is_switch) return {};
  const auto count = static_cast<int>(words.size());
  if (count < o.min_values) return str_cat("needs ", o.min_values, o.min_values == 1 ? " value" : " values");
  for (const std::string& word : words) {
    if (!o.choices.empty() && std::find(o.choices.begin(), o.choices.end(), word) == o.choices.end()) {
      std::string allowed;
      for (const std::string& c : o.choices) allowed += (allowed.empty() ? "" : ", ") + c;
      return str_cat(word, ": allowed are ", allowed);
    }
    const std::string problem = o.type == "int" ? integer_problem(word) : o.type == "real" ? real_problem(word) : "";
    if (!problem.empty()) return str_cat(word, " ", problem);
  }
  return {};
}

}  // namespace megatron::config
