#include "data/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace megatron::data {
namespace {

constexpr std::size_t kBufferBytes = 1 << 18;
constexpr int kLargestWindowLog = 31;  // what `zstd --long=31` writes

/// The bytes of a file as they are, through a buffer whose front can be looked at.
class RawFile {
 public:
  explicit RawFile(const std::string& path) : path_(path), buffer_(kBufferBytes) {
    if (path == "-") {
      fd_ = STDIN_FILENO;
      return;
    }
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) throw IoError(str_cat(path_, ": cannot open: ", std::strerror(errno)));
    ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  ~RawFile() {
    if (fd_ > STDIN_FILENO) ::close(fd_);
  }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t offset() const { return offset_; }
  /// What is in the buffer, refilled when it is empty; empty at the end of the file.
  std::span<const char> available() {
    if (begin_ == end_) {
      begin_ = 0;
      end_ = read_some(buffer_);
    }
    return {buffer_.data() + begin_, end_ - begin_};
  }
  void take(std::size_t count) {
    begin_ += count;
    offset_ += static_cast<std::int64_t>(count);
  }
  /// At least `count` bytes in the buffer, unless the file ends before.
  std::span<const char> peek(std::size_t count) {
    while (end_ - begin_ < count) {
      const std::size_t got = read_some(std::span(buffer_).subspan(end_));
      if (got == 0) break;
      end_ += got;
    }
    return {buffer_.data() + begin_, end_ - begin_};
  }
  std::size_t read(std::span<char> into) {
    std::size_t got = 0;
    if (begin_ < end_) {
      got = std::min(into.size(), end_ - begin_);
      std::memcpy(into.data(), buffer_.data() + begin_, got);
      begin_ += got;
    } else {
      got = read_some(into);
    }
    offset_ += static_cast<std::int64_t>(got);
    return got;
  }
  /// Only before anything was read from a regular file.
  void seek(std::int64_t offset) {
    struct stat info {};
    if (::fstat(fd_, &info) != 0 || info.st_size < offset || ::lseek(fd_, offset, SEEK_SET) != offset)
      throw IoError(str_cat(path_, ": has no offset ", offset));
    offset_ = offset;
  }

 private:
  std::size_t read_some(std::span<char> into) {
    ssize_t got = -1;
    do {
      got = ::read(fd_, into.data(), into.size());
    } while (got < 0 && errno == EINTR);
    if (got < 0) throw IoError(str_cat(path_, ": cannot read at offset ", offset_, ": ", std::strerror(errno)));
    return static_cast<std::size_t>(got);
  }

  std::string path_;
  int fd_ = -1;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  std::int64_t offset_ = 0;
};

using File = std::unique_ptr<RawFile>;

void skip_by_reading(ByteSource& source, const std::string& path, std::int64_t count) {
  std::vector<char> piece(kBufferBytes);
  while (count > 0) {
    const auto part = static_cast<std::size_t>(std::min<std::int64_t>(count, kBufferBytes));
    const std::size_t got = source.read(std::span(piece).first(part));
    if (got == 0) throw IoError(str_cat(path, ": ends ", count, " bytes too early"));
    count -= static_cast<std::int64_t>(got);
  }
}

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(File file) : file_(std::move(file)) {}
  std::size_t read(std::span<char> into) override { return file_->read(into); }
  void skip(std::int64_t count) override { file_->seek(count); }
  std::int64_t consumed() const override { return file_->offset(); }

 private:
  File file_;
};

class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(File file) : file_(std::move(file)) {
    MEGATRON_CHECK(::inflateInit2(&stream_, 15 + 16) == Z_OK, "zlib cannot start");
  }
  ~GzipSource() override { ::inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  std::size_t read(std::span<char> into) override {
    const auto wanted = static_cast<uInt>(std::min<std::size_t>(into.size(), 1U << 30));
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    stream_.avail_out = wanted;
    while (stream_.avail_out == wanted) {
      const std::span<const char> input = file_->available();
      if (input.empty()) {
        if (inside_)
          throw IoError(str_cat(file_->path(), ": gzip data end at offset ", file_->offset(), " (truncated)"));
        return 0;
      }
      if (!inside_) ::inflateReset(&stream_);
      inside_ = true;
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
      stream_.avail_in = static_cast<uInt>(input.size());
      const int code = ::inflate(&stream_, Z_NO_FLUSH);
      file_->take(input.size() - stream_.avail_in);
      if (code != Z_OK && code != Z_STREAM_END)
        throw IoError(str_cat(file_->path(), ": damaged gzip data near offset ", file_->offset(),
                              stream_.msg != nullptr ? str_cat(": ", stream_.msg) : std::string()));
      inside_ = code != Z_STREAM_END;  // a file may hold several members, one after the other
    }
    return wanted - stream_.avail_out;
  }
  void skip(std::int64_t count) override { skip_by_reading(*this, file_->path(), count); }
  std::int64_t consumed() const override { return file_->offset(); }

 private:
  File file_;
  z_stream stream_{};
  bool inside_ = false;
};

class ZstdSource final : public ByteSource {
 public:
  explicit ZstdSource(File file) : file_(std::move(file)), stream_(::ZSTD_createDStream()) {
    MEGATRON_CHECK(stream_ != nullptr, "zstd cannot start");
    ::ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kLargestWindowLog);
  }
  ~ZstdSource() override { ::ZSTD_freeDStream(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

  std::size_t read(std::span<char> into) override {
    ZSTD_outBuffer output{into.data(), into.size(), 0};
    while (output.pos == 0) {
      const std::span<const char> bytes = file_->available();
      // Output may still wait inside the decoder after the last byte of input.
      ZSTD_inBuffer input{bytes.data(), bytes.size(), 0};
      if (bytes.empty() && !inside_) return 0;
      const std::size_t code = ::ZSTD_decompressStream(stream_, &output, &input);
      file_->take(input.pos);
      if (::ZSTD_isError(code) != 0)
        throw IoError(str_cat(file_->path(), ": damaged zstd data near offset ", file_->offset(), ": ",
                              ::ZSTD_getErrorName(code)));
      inside_ = code != 0;
      if (bytes.empty() && inside_ && output.pos == 0)
        throw IoError(str_cat(file_->path(), ": zstd data end at offset ", file_->offset(), " (truncated)"));
    }
    return output.pos;
  }
  void skip(std::int64_t count) override { skip_by_reading(*this, file_->path(), count); }
  std::int64_t consumed() const override { return file_->offset(); }

 private:
  File file_;
  ZSTD_DStream* stream_;
  bool inside_ = false;
};

bool starts_with(std::span<const char> bytes, std::string_view mark) {
  return std::string_view(bytes.data(), bytes.size()).starts_with(mark);
}

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::string& path) {
  File file = std::make_unique<RawFile>(path);
  const std::span<const char> front = path == "-" ? file->peek(4) : std::span<const char>();
  if (path.ends_with(".gz") || starts_with(front, "\x1f\x8b")) return std::make_unique<GzipSource>(std::move(file));
  if (path.ends_with(".zst") || starts_with(front, "\x28\xb5\x2f\xfd"))
    return std::make_unique<ZstdSource>(std::move(file));
  return std::make_unique<PlainSource>(std::move(file));
}

std::string uncompressed_name(const std::string& path) {
  for (const std::string_view suffix : {".gz", ".zst"})
    if (path.ends_with(suffix)) return path.substr(0, path.size() - suffix.size());
  return path;
}

std::optional<std::int64_t> bytes_on_disk(const std::string& path) {
  struct stat info {};
  if (path == "-" || ::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  return info.st_size;
}

}  // namespace megatron::data
