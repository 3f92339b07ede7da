// One option of the program as a row of a table: names, form, range, help, and the field it fills.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "config/draft.h"
#include "config/text_value.h"

namespace megatron::config {

enum class Form : std::uint8_t { value, set_true, set_false, list, choice };
enum class Type : std::uint8_t { truth, integer, real, text };

/// Returns what is wrong with the words, or nothing.
using Setter = std::function<std::string(Draft&, const std::vector<std::string>&)>;

struct Option {
  std::string name;  // "--hidden-size"
  std::vector<std::string> aliases;
  std::string dest;  // YAML key; of a set_false option the positive field ("add_bias_linear")
  std::string topic, help, unit;
  Form form = Form::value;
  Type type = Type::text;
  std::vector<std::string> choices, unbuilt_choices;
  std::optional<double> min, max;
  bool above_min = false, below_max = false;  // the value must lie above `min`, below `max`
  std::string not_built;                      // why any value but the default is refused, and what to use instead
  bool ours = false;                          // not an option of Megatron-LM
  bool accepts_empty_list = false;
  bool has_default = true;  // false: a rule asks for a value where the option means something
  Setter set;
  std::function<std::string(const Draft&)> show;

  Option&& alias(std::string other) && { return aliases.push_back(std::move(other)), std::move(*this); }
  Option&& key(std::string yaml_key) && { return dest = std::move(yaml_key), std::move(*this); }
  Option&& in(std::string unit_name) && { return unit = std::move(unit_name), std::move(*this); }
  Option&& at_least(double low) && { return min = low, std::move(*this); }
  Option&& above(double low) && { return min = low, above_min = true, std::move(*this); }
  Option&& at_most(double high) && { return max = high, std::move(*this); }
  Option&& below(double high) && { return max = high, below_max = true, std::move(*this); }
  Option&& unbuilt(std::string why) && { return not_built = std::move(why), std::move(*this); }
  Option&& unbuilt_values(std::vector<std::string> values) && {
    return unbuilt_choices = std::move(values), std::move(*this);
  }
  Option&& no_default() && { return has_default = false, std::move(*this); }
  Option&& our_own() && { return ours = true, std::move(*this); }
};

/// "--hidden-size" → "hidden_size".
std::string key_of(const std::string& name);
/// Range of a numeric option as text: "at least 1"; empty where any value goes.
std::string range_text(const Option& option);

namespace detail {

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <typename T>
constexpr Type type_of() {
  if constexpr (IsOptional<T>::value) {
    return type_of<typename T::value_type>();
  } else if constexpr (std::is_same_v<T, bool>) {
    return Type::truth;
  } else if constexpr (std::is_integral_v<T>) {
    return Type::integer;
  } else if constexpr (std::is_floating_point_v<T>) {
    return Type::real;
  } else {
    return Type::text;
  }
}

template <typename T>
std::string assign(T& field, const std::string& text) {
  if constexpr (IsOptional<T>::value) {
    typename T::value_type value{};
    std::string problem = assign(value, text);
    if (problem.empty()) field = value;
    return problem;
  } else if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
    constexpr std::int64_t most = std::in_range<std::int64_t>(Limits::max()) ? Limits::max() : kMost;
    std::string problem = integer_problem(text, Limits::min(), most);
    if (problem.empty()) field = static_cast<T>(*parse_integer(text));
    return problem;
  } else if constexpr (std::is_floating_point_v<T>) {
    std::string problem = real_problem(text);
    if (problem.empty()) field = *parse_real(text);
    return problem;
  } else {
    field = text;
  }
  return {};
}

template <typename T>
std::string show(const T& field) {
  if constexpr (IsOptional<T>::value) {
    return field ? show(*field) : std::string();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return field;
  } else if constexpr (std::is_floating_point_v<T>) {
    return format_real(field);
  } else {
    return str_cat(field);
  }
}

template <typename Field>
using FieldType = std::remove_cvref_t<std::invoke_result_t<Field, Draft&>>;

/// `field` takes a mutable Draft; reading goes through a const one.
template <typename Field>
auto& read(Field field, const Draft& draft) {
  return std::as_const(field(const_cast<Draft&>(draft)));
}

}  // namespace detail

/// A number or a text; the type is that of the field.
template <typename Field>
Option value(std::string name, Field field, std::string help) {
  Option o;
  o.dest = key_of(name);
  o.name = std::move(name);
  o.help = std::move(help);
  o.type = detail::type_of<detail::FieldType<Field>>();
  o.set = [field](Draft& d, const std::vector<std::string>& words) { return detail::assign(field(d), words.front()); };
  o.show = [field](const Draft& d) { return detail::show(detail::read(field, d)); };
  return o;
}

/// A switch: named on the command line it sets the field to true.
template <typename Field>
Option flag(std::string name, Field field, std::string help) {
  Option o;
  o.dest = key_of(name);
  o.name = std::move(name);
  o.help = std::move(help);
  o.form = Form::set_true;
  o.type = Type::truth;
  o.set = [field](Draft& d, const std::vector<std::string>& words) -> std::string {
    const auto truth = words.empty() ? std::optional(true) : parse_truth(words.front());
    if (!truth) return "is neither True nor False";
    field(d) = *truth;
    return {};
  };
  o.show = [field](const Draft& d) { return detail::show(detail::read(field, d)); };
  return o;
}

/// A switch that sets the field `dest` to false ("--disable-bias-linear" → add_bias_linear).
template <typename Field>
Option off_flag(std::string name, std::string dest, Field field, std::string help) {
  Option o = flag(std::move(name), field, std::move(help)).key(std::move(dest));
  o.form = Form::set_false;
  o.set = [field](Draft& d, const std::vector<std::string>& words) -> std::string {
    const auto truth = words.empty() ? std::optional(true) : parse_truth(words.front());
    if (!truth) return "is neither True nor False";
    field(d) = !*truth;
    return {};
  };
  return o;
}

/// Several words.
template <typename Field>
Option list(std::string name, Field field, std::string help) {
  Option o;
  o.dest = key_of(name);
  o.name = std::move(name);
  o.help = std::move(help);
  o.form = Form::list;
  o.set = [field](Draft& d, const std::vector<std::string>& words) { return field(d) = words, std::string(); };
  o.show = [field](const Draft& d) {
    std::string joined;
    for (const std::string& word : detail::read(field, d)) joined += (joined.empty() ? "" : " ") + word;
    return joined;
  };
  return o;
}

/// One of a few named values.
template <typename Field>
Option choice(std::string name, Field field,
              std::vector<std::pair<std::string, std::type_identity_t<detail::FieldType<Field>>>> values,
              std::string help) {
  Option o;
  o.dest = key_of(name);
  o.name = std::move(name);
  o.help = std::move(help);
  o.form = Form::choice;
  for (const auto& [text, unused] : values) o.choices.push_back(text);
  o.set = [field, values](Draft& d, const std::vector<std::string>& words) -> std::string {
    for (const auto& [text, meaning] : values)
      if (text == words.front()) field(d) = meaning;
    return {};  // unknown words were refused against `choices` before
  };
  o.show = [field, values](const Draft& d) {
    for (const auto& [text, meaning] : values)
      if (meaning == detail::read(field, d)) return text;
    return std::string();
  };
  return o;
}

/// A choice kept as the text itself.
template <typename Field>
Option text_choice(std::string name, Field field, std::vector<std::string> choices, std::string help) {
  Option o = value(std::move(name), field, std::move(help));
  o.form = Form::choice;
  o.choices = std::move(choices);
  return o;
}

}  // namespace megatron::config
