// Options of commands that do not describe a run (preprocess, merge-datasets, …): one row each, all mistakes of a
// command line at once. `--name value`, `--name=value`; lists take words up to the next option; numbers may have
// underscores.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace megatron::cli {

class ArgumentParser {
 public:
  // Where values go must outlive the parser; what is not given is left as it is.
  void flag(const char* name, bool& to, bool value = true);
  void text(const char* name, std::string& to);
  void list(const char* name, std::vector<std::string>& to);
  void integer(const char* name, std::int64_t& to, std::int64_t least);
  void integer(const char* name, std::optional<std::int64_t>& to, std::int64_t least);
  /// An option of Megatron-LM that is not taken, with what follows its name in the message.
  void refuse(const char* name, const char* reason);

  /// Stores what is given and returns the mistakes, one line each.
  std::vector<std::string> parse(Arguments args);
  /// Asked after `parse`.
  bool given(const std::string& name) const;

 private:
  enum class Arity : std::uint8_t { flag, one, many };
  using Store = std::function<void(const std::vector<std::string>&)>;
  struct Row {
    std::string name;
    Arity arity;
    Store store;
    const char* refused = nullptr;
  };
  void add(const char* name, Arity arity, Store store);
  void next_option(Arguments args, std::size_t& at);
  void unknown(const std::string& name, Arguments args, std::size_t& at);
  std::optional<std::int64_t> parse_integer(const std::string& name, const std::string& text, std::int64_t least);

  std::vector<Row> rows_;
  std::vector<std::string> given_, errors_;
};

/// Prints the mistakes, one line each; the exit status of a command that ends with them.
int refuse(const std::vector<std::string>& errors);

}  // namespace megatron::cli
