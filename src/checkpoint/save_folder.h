// The folder of one save on its way from iter_0000010.tmp to iter_0000010: what the first rank does with names.
#pragma once

#include <cstdint>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/write_plan.h"

namespace megatron::checkpoint {

class SaveFolder {
 public:
  SaveFolder(const std::string& directory, std::int64_t iteration);

  const std::string& temporary() const { return temporary_; }
  const std::string& final_path() const { return final_; }

  /// Creates the parent folder, removes what interrupted saves left, makes the temporary folder with all files in it:
  /// headers written, sizes reserved.
  void create(const WritePlan& plan);
  /// Writes state.json and manifest.json and makes all names durable.
  void complete(const Manifest& manifest, const std::string& state_json);
  /// Gives the folder its final name; one of that name that was there before takes the temporary name, or is kept
  /// aside.
  void publish();
  /// Undoes publish().
  void withdraw();
  /// Lets the tracker file name the iteration.
  void track(std::int64_t iteration);
  /// Removes the temporary folder and what publish() set aside.
  void clean();

 private:
  void remove_leftovers();

  std::string directory_, final_, temporary_;
  std::string aside_;  // where a folder that is being replaced waits, if names cannot be exchanged
  enum class Published : std::uint8_t { no, renamed, exchanged, set_aside } published_ = Published::no;
};

/// DIR/latest_checkpointed_iteration.txt
std::string tracker_path(const std::string& directory);

}  // namespace megatron::checkpoint
