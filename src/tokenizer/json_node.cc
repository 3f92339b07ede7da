#include "tokenizer/json_node.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/mapped_file.h"
#include "tokenizer/one_line.h"

namespace megatron::tokenizer {
namespace {

const nlohmann::json& json_of(const void* value) { return *static_cast<const nlohmann::json*>(value); }

std::string child_place(const std::string& place, std::string_view key) {
  return place.empty() ? std::string(key) : place + "." + std::string(key);
}

/// nlohmann's message without its "[json.exception...] parse error " in front and without line ends.
std::string reason_of(const nlohmann::json::exception& error) {
  std::string reason = error.what();
  const std::size_t from = reason.find("] ");
  if (from != std::string::npos) reason.erase(0, from + 2);
  std::replace_if(
      reason.begin(), reason.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return reason;
}

}  // namespace

struct JsonNode::Root {
  std::string name;
  nlohmann::json json;
};

JsonNode JsonNode::parse(std::string_view text, const std::string& name) {
  auto root = std::make_shared<Root>();
  root->name = name;
  try {
    root->json = nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {  // a number beyond all bounds is no parse_error
    throw ConfigError(str_cat(name, ": not JSON: ", one_line(reason_of(error))));
  }
  const void* value = &root->json;
  return JsonNode(std::move(root), value, "");
}

JsonNode JsonNode::read(const std::string& file) {
  const MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file);
}

void JsonNode::refuse(std::string_view reason) const {
  throw ConfigError(
      str_cat(root_->name, ": ", place_.empty() ? "the file" : one_line(place_, 300), ": ", one_line(reason)));
}

bool JsonNode::is_null() const { return value_ == nullptr || json_of(value_).is_null(); }
bool JsonNode::is_object() const { return value_ != nullptr && json_of(value_).is_object(); }
bool JsonNode::is_array() const { return value_ != nullptr && json_of(value_).is_array(); }
bool JsonNode::is_string() const { return value_ != nullptr && json_of(value_).is_string(); }

JsonNode JsonNode::operator[](std::string_view key) const {
  if (!is_object()) refuse("must be an object");
  const nlohmann::json& json = json_of(value_);
  const auto found = json.find(key);
  return JsonNode(root_, found == json.end() ? nullptr : &*found, child_place(place_, key));
}

JsonNode JsonNode::required(std::string_view key) const {
  JsonNode node = (*this)[key];
  if (!node.exists()) node.refuse("is missing");
  return node;
}

std::string JsonNode::string() const {
  if (!is_string()) refuse("must be a string");
  return json_of(value_).get<std::string>();
}

bool JsonNode::boolean() const {
  if (value_ == nullptr || !json_of(value_).is_boolean()) refuse("must be true or false");
  return json_of(value_).get<bool>();
}

std::int64_t JsonNode::integer() const {
  if (value_ == nullptr || !json_of(value_).is_number_integer()) refuse("must be an integer");
  const nlohmann::json& json = json_of(value_);
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
    refuse(str_cat(json.get<std::uint64_t>(), " is too large"));
  return json.get<std::int64_t>();
}

double JsonNode::number() const {
  if (value_ == nullptr || !json_of(value_).is_number()) refuse("must be a number");
  return json_of(value_).get<double>();
}

std::string JsonNode::string_or(std::string_view key, std::string_view otherwise) const {
  const JsonNode node = (*this)[key];
  return node.is_null() ? std::string(otherwise) : node.string();
}

bool JsonNode::boolean_or(std::string_view key, bool otherwise) const {
  const JsonNode node = (*this)[key];
  return node.is_null() ? otherwise : node.boolean();
}

std::int64_t JsonNode::integer_or(std::string_view key, std::int64_t otherwise) const {
  const JsonNode node = (*this)[key];
  return node.is_null() ? otherwise : node.integer();
}

std::size_t JsonNode::size() const { return value_ == nullptr ? 0 : json_of(value_).size(); }

JsonNode JsonNode::element(std::size_t index) const {
  if (!is_array()) refuse("must be an array");
  const nlohmann::json& json = json_of(value_);
  if (index >= json.size()) refuse(str_cat("has ", json.size(), " elements, needs more than ", index));
  return JsonNode(root_, &json[index], str_cat(place_, "[", index, "]"));
}

void JsonNode::for_each_member(const std::function<void(const std::string&, const JsonNode&)>& visit) const {
  if (!is_object()) refuse("must be an object");
  const nlohmann::json& json = json_of(value_);
  for (auto member = json.begin(); member != json.end(); ++member)
    visit(member.key(), JsonNode(root_, &member.value(), child_place(place_, member.key())));
}

void JsonNode::for_each_element(const std::function<void(std::size_t, const JsonNode&)>& visit) const {
  if (!is_array()) refuse("must be an array");
  const nlohmann::json& json = json_of(value_);
  for (std::size_t i = 0; i < json.size(); ++i)
    visit(i, JsonNode(root_, &json[i], place_ + "[" + std::to_string(i) + "]"));
}

void JsonNode::allow_only(std::initializer_list<std::string_view> keys) const {
  if (!is_object()) refuse("must be an object");
  const nlohmann::json& json = json_of(value_);
  for (auto member = json.begin(); member != json.end(); ++member)
    if (std::find(keys.begin(), keys.end(), std::string_view(member.key())) == keys.end())
      JsonNode(root_, &member.value(), child_place(place_, member.key()))
          .refuse("is not a key that this version knows");
}

}  // namespace megatron::tokenizer
