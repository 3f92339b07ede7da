// The notes that processes exchange: keys of operations, failures, questions about progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/abort.h"
#include "comm/rank_status.h"
#include "comm/request.h"

namespace megatron::comm {

enum class NoteKind : std::uint32_t {
  collective,      // a member's key and part of a collective
  message,         // the sender's key and data of a message
  claim,           // to process 0: a failure that wants to be the first
  abort,           // the failure that is the first
  status_request,  // what is your rank doing?
  status,          // the answer
  finished,        // the sender's rank function has returned
};

/// One note of any kind; each kind uses the fields named beside it.
struct Note {
  NoteKind kind = NoteKind::finished;
  // collective, message
  std::uint64_t group = 0;
  std::int64_t sequence = 0;
  Key key;
  int tag = -1;            // of the data that follow apart, −1: none
  std::int64_t rows = 0;   // all_to_all: rows for the receiver of the note
  std::int64_t bytes = 0;  // of the data, here or apart
  std::vector<std::byte> data;
  // claim, abort
  Culprit culprit;
  int exit_status = 1;
  // status_request, status, finished
  std::int64_t number = 0;
  RankRecord record;
};

std::vector<std::byte> encode(const Note& note);
/// Throws CommError if the bytes are no note.
Note decode(const std::vector<std::byte>& bytes, int from);

/// The same in all members, different for different groups.
std::uint64_t group_id(const std::string& name, const std::vector<int>& members, int instance);

}  // namespace megatron::comm
