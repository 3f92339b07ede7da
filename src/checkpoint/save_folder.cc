#include "checkpoint/save_folder.h"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "checkpoint/checksum.h"
#include "checkpoint/file_io.h"
#include "checkpoint/writer.h"

namespace megatron::checkpoint {
namespace {

constexpr const char* kTemporary = ".tmp";
constexpr const char* kAside = ".replaced.tmp";

/// A link that leads nowhere counts too: its name is taken.
bool is_taken(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

/// "iter_0000010" of "iter_0000010.tmp" and of "iter_0000010.replaced.tmp"; empty for all other names.
std::string stem_of_leftover(const std::string& name) {
  for (const char* end : {kAside, kTemporary}) {
    if (!name.ends_with(end)) continue;
    std::string stem = name.substr(0, name.size() - std::strlen(end));
    if (stem.size() >= 12 && stem.compare(0, 5, "iter_") == 0 &&
        stem.find_first_not_of("0123456789", 5) == std::string::npos)
      return stem;
  }
  return {};
}

}  // namespace

std::string tracker_path(const std::string& directory) { return directory + "/latest_checkpointed_iteration.txt"; }

std::string iteration_folder(std::int64_t iteration) {
  MEGATRON_CHECK_GE(iteration, 0, "iteration of a checkpoint");
  const std::string digits = std::to_string(iteration);
  return str_cat("iter_", std::string(digits.size() < 7 ? 7 - digits.size() : 0, '0'), digits);
}

SaveFolder::SaveFolder(const std::string& directory, std::int64_t iteration)
    : directory_(directory.empty() ? "." : directory),
      final_(directory_ + "/" + iteration_folder(iteration)),
      temporary_(final_ + kTemporary),
      aside_(final_ + kAside) {}

void SaveFolder::remove_leftovers() {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory_, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) throw IoError(str_cat(directory_, ": cannot list: ", error.message()));
  for (const std::string& name : names) {
    const std::string stem = stem_of_leftover(name);
    if (stem.empty()) continue;
    // A crash between two renames leaves the replaced folder as the only one: it gets its name back.
    if (name.ends_with(kAside) && !is_taken(directory_ + "/" + stem))
      rename_path(directory_ + "/" + name, directory_ + "/" + stem);
    else
      remove_path(directory_ + "/" + name);
  }
}

void SaveFolder::create(const WritePlan& plan) {
  create_directories(directory_);
  remove_leftovers();
  create_directories(temporary_);
  for (const PlannedFile& planned : plan.files) {
    OutputFile file(temporary_ + "/" + planned.name, OutputFile::Mode::create);
    file.reserve(planned.bytes);
    file.write_at(0, as_bytes(planned.header));
    file.close();  // every file has a writer, and that one syncs it
  }
}

void SaveFolder::complete(const Manifest& manifest, const std::string& state_json) {
  write_text_file(temporary_ + "/state.json", state_json);
  write_text_file(temporary_ + "/manifest.json", manifest_to_json(manifest));
  sync_directory(temporary_);
}

void SaveFolder::publish() {
  if (!is_taken(final_)) {
    rename_path(temporary_, final_);
    published_ = Published::renamed;
  } else if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) == 0) {
    published_ = Published::exchanged;
  } else {
    rename_path(final_, aside_);
    published_ = Published::set_aside;
    rename_path(temporary_, final_);
  }
  sync_directory(directory_);
}

void SaveFolder::withdraw() {
  const Published was = published_;
  published_ = Published::no;
  if (was == Published::renamed) rename_path(final_, temporary_);
  if (was == Published::exchanged)
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) != 0)
      throw IoError(str_cat(final_, ": cannot exchange back with ", temporary_, ": ", std::strerror(errno)));
  if (was == Published::set_aside) {
    if (is_taken(final_)) rename_path(final_, temporary_);
    rename_path(aside_, final_);
  }
}

void SaveFolder::track(std::int64_t iteration) {
  const std::string path = tracker_path(directory_);
  const bool had_tracker = is_taken(path);
  const std::string before = had_tracker ? read_text_file(path) : std::string();
  write_text_file(path + kTemporary, std::to_string(iteration));
  rename_path(path + kTemporary, path);
  try {
    sync_directory(directory_);
  } catch (const IoError&) {
    if (had_tracker)
      write_text_file(path, before);
    else
      remove_path(path);
    throw;
  }
}

void SaveFolder::clean() {
  remove_path(temporary_);
  remove_path(tracker_path(directory_) + kTemporary);
  // Set aside and not brought back only when the new folder is in place.
  if (is_taken(final_)) remove_path(aside_);
}

}  // namespace megatron::checkpoint
