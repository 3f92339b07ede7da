#include "cli/argument_parser.h"

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "config/nearest.h"
#include "config/text_value.h"

namespace megatron::cli {
namespace {

/// A negative number and a lone "-" (standard input) are values.
bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && !(word[1] >= '0' && word[1] <= '9');
}

}  // namespace

void ArgumentParser::add(const char* name, Arity arity, Store store) {
  rows_.push_back({name, arity, std::move(store), nullptr});
}

void ArgumentParser::flag(const char* name, bool& to, bool value) {
  add(name, Arity::flag, [&to, value](const auto&) { to = value; });
}

void ArgumentParser::text(const char* name, std::string& to) {
  add(name, Arity::one, [&to](const auto& values) { to = values[0]; });
}

void ArgumentParser::list(const char* name, std::vector<std::string>& to) {
  add(name, Arity::many, [&to](const auto& values) { to = values; });
}

void ArgumentParser::integer(const char* name, std::int64_t& to, std::int64_t least) {
  add(name, Arity::one, [this, name, &to, least](const auto& values) {
    if (const auto value = parse_integer(name, values[0], least)) to = *value;
  });
}

void ArgumentParser::integer(const char* name, std::optional<std::int64_t>& to, std::int64_t least) {
  add(name, Arity::one, [this, name, &to, least](const auto& values) {
    if (const auto value = parse_integer(name, values[0], least)) to = value;
  });
}

void ArgumentParser::refuse(const char* name, const char* reason) { rows_.push_back({name, Arity::many, {}, reason}); }

bool ArgumentParser::given(const std::string& name) const {
  return std::find(given_.begin(), given_.end(), name) != given_.end();
}

std::vector<std::string> ArgumentParser::parse(Arguments args) {
  for (std::size_t at = 0; at < args.size();) next_option(args, at);
  return errors_;
}

void ArgumentParser::next_option(Arguments args, std::size_t& at) {
  const std::string& word = args[at++];
  const std::size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
  const std::string name = word.substr(0, equals);
  const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const Row& r) { return r.name == name; });
  if (row == rows_.end()) return unknown(name, args, at);
  std::vector<std::string> values;
  if (equals != std::string::npos) {
    values.push_back(word.substr(equals + 1));
  } else if (row->arity != Arity::flag) {
    while (at < args.size() && !is_option(args[at]) && (row->arity == Arity::many || values.empty()))
      values.push_back(args[at++]);
  }
  given_.push_back(name);
  if (row->refused != nullptr) {
    errors_.push_back(name + ": " + row->refused);
  } else if (row->arity == Arity::flag && !values.empty()) {
    errors_.push_back(name + ": takes no value, given '" + values[0] + "'");
  } else if (row->arity != Arity::flag && values.empty()) {
    errors_.push_back(name + ": a value is missing");
  } else {
    row->store(values);
  }
}

void ArgumentParser::unknown(const std::string& name, Arguments args, std::size_t& at) {
  if (!name.starts_with("-")) {
    errors_.push_back("'" + name + "': is not an option");
    return;
  }
  std::vector<std::string> names;
  for (const Row& row : rows_) names.push_back(row.name);
  const std::string near = config::nearest_name(name, names);
  errors_.push_back(name + ": unknown option" + (near.empty() ? "" : "; nearest is " + near));
  while (at < args.size() && !is_option(args[at])) ++at;
}

std::optional<std::int64_t> ArgumentParser::parse_integer(const std::string& name, const std::string& text,
                                                          std::int64_t least) {
  const std::optional<std::int64_t> value = config::parse_integer(text);
  if (!value)
    errors_.push_back(name + " " + text + ": must be an integer");
  else if (*value < least)
    errors_.push_back(str_cat(name, " ", text, ": must be at least ", least));
  else
    return value;
  return {};
}

int refuse(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) std::fprintf(stderr, "%s\n", error.c_str());
  return 2;
}

}  // namespace megatron::cli
