// Checks that are always on, and the exceptions of the whole program.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace megatron {

/// Root of every exception that the program throws on purpose; `what()` is one clear line.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A wrong configuration: names option, value, rule and the nearest valid value. Exit status 2.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A file that cannot be read or written: names path and offset. Exit status 1.
class IoError : public Error {
 public:
  using Error::Error;
};

/// A failed or aborted communication: names rank, group and operation. Exit status 3.
class CommError : public Error {
 public:
  using Error::Error;
};

/// Joins its arguments as `operator<<` prints them (bool as true/false).
template <typename... Parts>
std::string str_cat(const Parts&... parts) {
  std::ostringstream out;
  out << std::boolalpha;
  ((out << parts), ...);
  return std::move(out).str();
}

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

template <typename A, typename B>
[[noreturn]] void check_op_failed(const char* file, int line, const char* condition, const A& a, const B& b,
                                  const std::string& message) {
  check_failed(file, line, condition, str_cat("left = ", a, ", right = ", b, message.empty() ? "" : "; ", message));
}
}  // namespace detail
}  // namespace megatron

/// Throws megatron::Error with the condition and the further arguments joined as text unless the condition holds.
#define MEGATRON_CHECK(condition, ...)                                                                    \
  do {                                                                                                    \
    if (!(condition)) [[unlikely]]                                                                        \
      ::megatron::detail::check_failed(__FILE__, __LINE__, #condition, ::megatron::str_cat(__VA_ARGS__)); \
  } while (false)

#define MEGATRON_CHECK_OP(a, op, b, ...)                                                                             \
  do {                                                                                                               \
    const auto& megatron_check_a = (a);                                                                              \
    const auto& megatron_check_b = (b);                                                                              \
    if (!(megatron_check_a op megatron_check_b)) [[unlikely]]                                                        \
      ::megatron::detail::check_op_failed(__FILE__, __LINE__, #a " " #op " " #b, megatron_check_a, megatron_check_b, \
                                          ::megatron::str_cat(__VA_ARGS__));                                         \
  } while (false)

/// As MEGATRON_CHECK, and prints both operands.
#define MEGATRON_CHECK_EQ(a, b, ...) MEGATRON_CHECK_OP(a, ==, b, __VA_ARGS__)
#define MEGATRON_CHECK_LE(a, b, ...) MEGATRON_CHECK_OP(a, <=, b, __VA_ARGS__)
#define MEGATRON_CHECK_LT(a, b, ...) MEGATRON_CHECK_OP(a, <, b, __VA_ARGS__)
#define MEGATRON_CHECK_GE(a, b, ...) MEGATRON_CHECK_OP(a, >=, b, __VA_ARGS__)
#define MEGATRON_CHECK_GT(a, b, ...) MEGATRON_CHECK_OP(a, >, b, __VA_ARGS__)
