#include "data/index_md5.h"

#include <cstring>
#include <limits>

#include "data/md5.h"

namespace megatron::data {
namespace {

/// Collects values of 4 or 8 bytes.
class Sum {
 public:
  explicit Sum(bool wide) : size_(wide ? 8 : 4) {}
  void add(std::int64_t value) {
    std::memcpy(buffer_ + filled_, &value, size_);
    filled_ += size_;
    if (filled_ == sizeof(buffer_)) flush();
  }
  std::string finish() {
    flush();
    return md5_.finish();
  }

 private:
  void flush() {
    md5_.add(std::as_bytes(std::span(buffer_, filled_)));
    filled_ = 0;
  }

  std::size_t size_, filled_ = 0;
  char buffer_[4096];
  Md5 md5_;
};

}  // namespace

IndexMd5 index_md5(const GptIndex& index) {
  constexpr std::int64_t kLargestInt32 = std::numeric_limits<std::int32_t>::max();
  const std::int64_t samples = index.sample_document.size();
  bool wide = index.documents.size() > kLargestInt32;
  for (std::int64_t i = 0; i < samples && !wide; ++i) wide = index.sample_offset[i] > kLargestInt32;
  Sum documents(false), starts(wide), order(index.order.size() >= std::numeric_limits<std::uint32_t>::max() - 1);
  for (std::int64_t i = 0; i < index.documents.size(); ++i) documents.add(index.documents[i]);
  for (std::int64_t i = 0; i < samples; ++i) {
    starts.add(index.sample_document[i]);
    starts.add(index.sample_offset[i]);
  }
  for (std::int64_t i = 0; i < index.order.size(); ++i) order.add(index.order[i]);
  return {documents.finish(), starts.finish(), order.finish()};
}

}  // namespace megatron::data
