// A JSON file read with places: every value knows the path that leads to it, so that every refusal names it.
// Nodes share the parsed file; they stay valid as long as one of them lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace megatron::tokenizer {

class JsonNode {
 public:
  /// Reads `file`. Throws IoError if it cannot be read, ConfigError with line and column if it is no JSON.
  static JsonNode read(const std::string& file);
  /// The same of text in memory; `name` stands for the file in messages.
  static JsonNode parse(std::string_view text, const std::string& name);

  /// False for a member that the object does not have.
  bool exists() const { return value_ != nullptr; }
  bool is_null() const;  // or absent
  bool is_object() const;
  bool is_array() const;
  bool is_string() const;

  /// The member `key` of an object; absent members give a node that does not exist. Refuses what is no object.
  JsonNode operator[](std::string_view key) const;
  /// The same; refuses an absent member.
  JsonNode required(std::string_view key) const;

  /// The value; refuses another type.
  std::string string() const;
  bool boolean() const;
  std::int64_t integer() const;
  double number() const;
  /// The value of an existing, non-null member, else `otherwise`.
  std::string string_or(std::string_view key, std::string_view otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;
  std::int64_t integer_or(std::string_view key, std::int64_t otherwise) const;

  std::size_t size() const;
  /// Element of an array; refuses what is no array.
  JsonNode element(std::size_t index) const;
  /// All members in the order of their names.
  void for_each_member(const std::function<void(const std::string& key, const JsonNode& value)>& visit) const;
  void for_each_element(const std::function<void(std::size_t index, const JsonNode& value)>& visit) const;

  /// Refuses an object that has a member with another name.
  void allow_only(std::initializer_list<std::string_view> keys) const;
  /// Throws ConfigError "file: place: reason".
  [[noreturn]] void refuse(std::string_view reason) const;
  const std::string& place() const { return place_; }

 private:
  struct Root;
  JsonNode(std::shared_ptr<const Root> root, const void* value, std::string place)
      : root_(std::move(root)), value_(value), place_(std::move(place)) {}

  std::shared_ptr<const Root> root_;
  const void* value_ = nullptr;
  std::string place_;
};

}  // namespace megatron::tokenizer
