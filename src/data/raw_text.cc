#include "data/raw_text.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "base/units.h"
#include "data/byte_source.h"
#include "data/corpus.h"
#include "data/indexed_dataset.h"
#include "data/output_file.h"
#include "tokenizer/identity.h"

namespace megatron::data {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kHashedPiece = 16 << 20;

bool holds_text(const std::string& path) {
  const std::string name = uncompressed_name(path);
  return name.ends_with(".jsonl") || name.ends_with(".json") || name.ends_with(".txt");
}

/// An exclusive lock that a process waits for; released by the destructor or when the process dies.
class FileLock {
 public:
  FileLock(const std::string& path, const RawTextConfig& config) : path_(path) {
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) throw IoError(str_cat(path, ": cannot create: ", std::strerror(errno)));
    try {
      if (taken()) return;
      if (config.say) config.say("another run tokenises the same text: waiting for it");
      do {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        if (config.interrupt) config.interrupt();
      } while (!taken());
    } catch (...) {
      ::close(fd_);
      throw;
    }
  }
  ~FileLock() { ::close(fd_); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  bool taken() const {
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK || errno == EINTR) return false;
    throw IoError(str_cat(path_, ": the file system has no locks (", std::strerror(errno),
                          "), by which runs keep apart; choose another --data-cache-path or prepare the text with "
                          "megatron preprocess"));
  }

  std::string path_;
  int fd_ = -1;
};

std::string digest(const std::vector<std::string>& parts) {
  const std::vector<std::string_view> views(parts.begin(), parts.end());
  return tokenizer::content_digest(views);
}

/// Digest of the bytes of all files, piece by piece by all threads.
std::string content_of(const std::vector<std::string>& files, int workers) {
  std::vector<std::string> parts;
  ThreadPool pool(std::max(workers, 1), /*spin=*/0);
  for (const std::string& path : files) {
    const MappedFile file(path);
    const std::int64_t pieces = ceil_div(file.size(), kHashedPiece);
    std::vector<std::string> digests(static_cast<std::size_t>(pieces));
    pool.parallel_for(pieces, [&](std::int64_t i, int) {
      const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
      const std::string_view piece = bytes.substr(static_cast<std::size_t>(i * kHashedPiece), kHashedPiece);
      digests[static_cast<std::size_t>(i)] = tokenizer::content_digest(std::span(&piece, 1));
    });
    // Whether a file is packed, and text or JSON Lines, is in its name.
    parts.push_back(str_cat(file.size(), corpus_kind(path) == CorpusKind::text ? " text" : " json",
                            path.substr(uncompressed_name(path).size())));
    parts.insert(parts.end(), digests.begin(), digests.end());
  }
  return digest(parts);
}

/// Digest of names, sizes and times of change.
std::string outside_of(const std::vector<std::string>& files) {
  std::vector<std::string> parts;
  for (const std::string& path : files) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) throw IoError(str_cat(path, ": cannot be read: ", std::strerror(errno)));
    parts.push_back(str_cat(fs::absolute(path).string(), " ", info.st_dev, " ", info.st_ino, " ", info.st_size, " ",
                            info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ", info.st_ctim.tv_sec, ".",
                            info.st_ctim.tv_nsec));
  }
  return digest(parts);
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

/// The content's digest: remembered, or read and remembered.
std::string content_digest_of(const RawTextConfig& config, const std::vector<std::string>& files) {
  const std::string memo = (fs::path(config.cache_folder) / ("text-" + outside_of(files) + ".seen")).string();
  std::string known = read_text(memo);
  if (known.size() == 32) return known;
  known = content_of(files, config.workers);
  try {
    write_whole_file(memo, known);
  } catch (const FileBusy&) {
    // Another run remembers the same.
  }
  return known;
}

/// Why one of the data sets cannot be opened; empty: all can.
std::string damage_of(const std::vector<std::string>& prefixes) {
  try {
    for (const std::string& prefix : prefixes) IndexedDataset{prefix};
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

bool complete(const std::string& prefix) {
  return ::access((prefix + ".idx").c_str(), R_OK) == 0 && ::access((prefix + ".bin").c_str(), R_OK) == 0;
}

}  // namespace

std::vector<std::string> raw_text_files(const std::vector<std::string>& sources) {
  std::vector<std::string> files;
  for (const std::string& source : sources) {
    std::error_code error;
    if (!fs::is_directory(source, error)) {
      if (::access(source.c_str(), R_OK) != 0)
        throw IoError(str_cat("--train-data ", source, ": cannot be read: ", std::strerror(errno)));
      files.push_back(source);
      continue;
    }
    std::vector<std::string> found;
    for (fs::recursive_directory_iterator at(source, error), end; !error && at != end; at.increment(error))
      if (at->is_regular_file() && holds_text(at->path().string())) found.push_back(at->path().string());
    if (error) throw IoError(str_cat("--train-data ", source, ": cannot be read: ", error.message()));
    if (found.empty())
      throw ConfigError(
          str_cat("--train-data ", source, ": holds no file that ends in .jsonl, .json or .txt (plain, .gz or .zst)"));
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

std::vector<std::string> tokenize_raw_text(const RawTextConfig& config, const tokenizer::Tokenizer& tokenizer) {
  const std::vector<std::string> files = raw_text_files(config.sources);
  std::error_code error;
  fs::create_directories(config.cache_folder, error);
  if (error) throw IoError(str_cat("--data-cache-path ", config.cache_folder, ": cannot be made: ", error.message()));
  std::vector<std::string> parts = {"raw text 1", content_digest_of(config, files), tokenizer.identity_hash(),
                                    config.append_eod ? "eod" : ""};
  parts.insert(parts.end(), config.json_keys.begin(), config.json_keys.end());
  PreprocessConfig work;
  work.inputs = files;
  work.json_keys = config.json_keys;
  work.append_eod = config.append_eod;
  work.workers = config.workers;
  work.output_prefix = (fs::path(config.cache_folder) / ("text-" + digest(parts))).string();
  std::vector<std::string> prefixes;
  for (const std::string& key : config.json_keys) prefixes.push_back(output_name(work.output_prefix, key));
  const auto all_there = [&] { return std::all_of(prefixes.begin(), prefixes.end(), complete); };
  const FileLock lock(work.output_prefix + ".lock", config);
  if (all_there()) {
    const std::string damage = damage_of(prefixes);
    if (config.say)
      config.say(damage.empty() ? str_cat("using the tokens in ", work.output_prefix)
                                : str_cat("the tokens of an earlier start are damaged: ", damage));
    if (damage.empty()) return prefixes;
  }
  if (config.say) config.say(str_cat("tokenising ", files.size(), " files into ", work.output_prefix));
  preprocess(work, tokenizer, [&](const PreprocessProgress& progress) {
    if (config.interrupt) config.interrupt();
    if (config.report) config.report(progress);
  });
  return prefixes;
}

}  // namespace megatron::data
