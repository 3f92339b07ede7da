#include "base/check.h"

#include <cstring>

namespace megatron::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  const char* in_src = std::strstr(file, "src/");
  throw Error(str_cat(message, message.empty() ? "" : " ", "[check failed: ", condition, " at ",
                      in_src != nullptr ? in_src + 4 : file, ":", line, "]"));
}

}  // namespace megatron::detail
