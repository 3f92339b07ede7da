// The transport on MPI. The library is opened at run time: a program that is not started by a launcher never loads it.
//
// In Open MPI handles such as MPI_COMM_WORLD are addresses of variables in the library, found by name; in MPICH and its
// kin they are constants of the header. Which of the two families is used is fixed by the header this file is compiled
// with.
// The headers' C++ classes would need the library at link time.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <dlfcn.h>
#include <mpi.h>

#include <deque>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "comm/mpi/transport.h"

namespace megatron::comm {

namespace {

constexpr int kNoteTag = 1;
constexpr int kFirstDataTag = 16;

/// The functions and handles that are used, and nothing else.
struct MpiLibrary {
  decltype(&::MPI_Initialized) initialized;
  decltype(&::MPI_Init_thread) init_thread;
  decltype(&::MPI_Finalize) finalize;
  decltype(&::MPI_Abort) abort;
  decltype(&::MPI_Comm_rank) comm_rank;
  decltype(&::MPI_Comm_size) comm_size;
  decltype(&::MPI_Comm_split_type) comm_split_type;
  decltype(&::MPI_Comm_free) comm_free;
  decltype(&::MPI_Comm_set_errhandler) comm_set_errhandler;
  decltype(&::MPI_Error_string) error_string;
  decltype(&::MPI_Isend) isend;
  decltype(&::MPI_Irecv) irecv;
  decltype(&::MPI_Test) test;
  decltype(&::MPI_Improbe) improbe;
  decltype(&::MPI_Imrecv) imrecv;
  decltype(&::MPI_Get_count) get_count;
  MPI_Comm world;
  MPI_Datatype byte;
  MPI_Errhandler errors_return;
  MPI_Info no_info;
};

void* open_library() {
#ifdef OPEN_MPI
  const char* const names[] = {"libmpi.so.40", "libmpi.so"};
#else
  const char* const names[] = {"libmpi.so.12", "libmpich.so.12", "libmpi.so"};
#endif
  std::string reasons;
  for (const char* name : names) {
    // Open MPI's own plugins look its symbols up globally.
    if (void* library = ::dlopen(name, RTLD_NOW | RTLD_GLOBAL)) return library;
    const char* reason = ::dlerror();
    reasons += str_cat(reasons.empty() ? "" : "; ", reason == nullptr ? name : reason);
  }
  throw ConfigError(str_cat("--distributed-backend mpi: no MPI library can be loaded (", reasons,
                            "); install Open MPI (libopenmpi3), or leave the launcher out: ranks are then threads"));
}

template <typename F>
void look_up(void* library, const char* name, F& function) {
  void* symbol = ::dlsym(library, name);
  if (symbol == nullptr)
    throw ConfigError(str_cat("--distributed-backend mpi: the MPI library has no ", name,
                              "; it is not of the kind this ", "program was built for"));
  function = reinterpret_cast<F>(symbol);
}

MpiLibrary load_library() {
  void* library = open_library();
  MpiLibrary mpi{};
  look_up(library, "MPI_Initialized", mpi.initialized);
  look_up(library, "MPI_Init_thread", mpi.init_thread);
  look_up(library, "MPI_Finalize", mpi.finalize);
  look_up(library, "MPI_Abort", mpi.abort);
  look_up(library, "MPI_Comm_rank", mpi.comm_rank);
  look_up(library, "MPI_Comm_size", mpi.comm_size);
  look_up(library, "MPI_Comm_split_type", mpi.comm_split_type);
  look_up(library, "MPI_Comm_free", mpi.comm_free);
  look_up(library, "MPI_Comm_set_errhandler", mpi.comm_set_errhandler);
  look_up(library, "MPI_Error_string", mpi.error_string);
  look_up(library, "MPI_Isend", mpi.isend);
  look_up(library, "MPI_Irecv", mpi.irecv);
  look_up(library, "MPI_Test", mpi.test);
  look_up(library, "MPI_Improbe", mpi.improbe);
  look_up(library, "MPI_Imrecv", mpi.imrecv);
  look_up(library, "MPI_Get_count", mpi.get_count);
#ifdef OPEN_MPI
  look_up(library, "ompi_mpi_comm_world", mpi.world);
  look_up(library, "ompi_mpi_byte", mpi.byte);
  look_up(library, "ompi_mpi_errors_return", mpi.errors_return);
  look_up(library, "ompi_mpi_info_null", mpi.no_info);
#else
  mpi.world = MPI_COMM_WORLD;
  mpi.byte = MPI_BYTE;
  mpi.errors_return = MPI_ERRORS_RETURN;
  mpi.no_info = MPI_INFO_NULL;
#endif
  return mpi;
}

class MpiTransport : public Transport {
 public:
  MpiTransport() : mpi_(load_library()) {
    int provided = 0;
    check(mpi_.init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_FUNNELED)
      throw ConfigError(
          "--distributed-backend mpi: the MPI library was built without threads (needs MPI_THREAD_FUNNELED)");
    check(mpi_.comm_set_errhandler(mpi_.world, mpi_.errors_return), "MPI_Comm_set_errhandler");
    check(mpi_.comm_rank(mpi_.world, &rank_), "MPI_Comm_rank");
    check(mpi_.comm_size(mpi_.world, &size_), "MPI_Comm_size");
    MPI_Comm machine;
    check(mpi_.comm_split_type(mpi_.world, MPI_COMM_TYPE_SHARED, 0, mpi_.no_info, &machine), "MPI_Comm_split_type");
    check(mpi_.comm_size(machine, &ranks_on_machine_), "MPI_Comm_size");
    check(mpi_.comm_free(&machine), "MPI_Comm_free");
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int ranks_on_this_machine() const override { return ranks_on_machine_; }

  Ticket send(int to, int tag, const void* data, std::int64_t bytes) override {
    MEGATRON_CHECK(bytes >= 0 && bytes <= kMaxBytes && tag >= 0 && tag < kNumTags);
    return start_send(to, kFirstDataTag + tag, data, bytes);
  }

  Ticket receive(int from, int tag, void* data, std::int64_t bytes) override {
    MEGATRON_CHECK(bytes >= 0 && bytes <= kMaxBytes && tag >= 0 && tag < kNumTags);
    MPI_Request request;
    check(mpi_.irecv(data, static_cast<int>(bytes), mpi_.byte, from, kFirstDataTag + tag, mpi_.world, &request),
          "MPI_Irecv");
    return add(request);
  }

  bool test(Ticket ticket) override {
    const auto it = requests_.find(ticket);
    MEGATRON_CHECK(it != requests_.end(), "ticket ", ticket, " is not under way");
    if (!finished(it->second)) return false;
    requests_.erase(it);
    return true;
  }

  Ticket send_note(int to, const std::vector<std::byte>& note) override {
    return start_send(to, kNoteTag, note.data(), static_cast<std::int64_t>(note.size()));
  }

  // Notes are received without blocking: a sender may be stopped in the midst of a longer one. Order counts per sender.
  bool next_note(int& from, std::vector<std::byte>& note) override {
    MPI_Status status;
    MPI_Message message;
    for (int found = 1; found != 0;) {
      check(mpi_.improbe(MPI_ANY_SOURCE, kNoteTag, mpi_.world, &found, &message, &status), "MPI_Improbe");
      if (found != 0) receive_note(message, status);
    }
    std::set<int> waiting;
    for (auto it = notes_.begin(); it != notes_.end(); ++it) {
      if (waiting.count(it->from) != 0) continue;
      if (!finished(it->request)) {
        waiting.insert(it->from);
        continue;
      }
      from = it->from;
      note = std::move(it->bytes);
      notes_.erase(it);
      return true;
    }
    return false;
  }

  void close() override { check(mpi_.finalize(), "MPI_Finalize"); }
  void abort(int exit_status) override { mpi_.abort(mpi_.world, exit_status); }

 private:
  struct IncomingNote {
    int from = 0;
    std::vector<std::byte> bytes;
    MPI_Request request{};
  };

  void check(int code, const char* what) const {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING + 1] = {};
    int length = 0;
    mpi_.error_string(code, text, &length);
    throw CommError(str_cat(what, ": ", text));
  }

  Ticket add(MPI_Request request) {
    requests_.emplace(++last_ticket_, request);
    return last_ticket_;
  }

  Ticket start_send(int to, int tag, const void* data, std::int64_t bytes) {
    MPI_Request request;
    check(mpi_.isend(data, static_cast<int>(bytes), mpi_.byte, to, tag, mpi_.world, &request), "MPI_Isend");
    return add(request);
  }

  void receive_note(MPI_Message message, const MPI_Status& status) {
    int bytes = 0;
    check(mpi_.get_count(&status, mpi_.byte, &bytes), "MPI_Get_count");
    IncomingNote note;
    note.from = status.MPI_SOURCE;
    note.bytes.resize(static_cast<std::size_t>(bytes));
    notes_.push_back(std::move(note));
    check(mpi_.imrecv(notes_.back().bytes.data(), bytes, mpi_.byte, &message, &notes_.back().request), "MPI_Imrecv");
  }

  bool finished(MPI_Request& request) const {
    int flag = 0;
    check(mpi_.test(&request, &flag, MPI_STATUS_IGNORE), "MPI_Test");
    return flag != 0;
  }

  MpiLibrary mpi_;
  int rank_ = 0, size_ = 1, ranks_on_machine_ = 1;
  std::unordered_map<Ticket, MPI_Request> requests_;
  Ticket last_ticket_ = 0;
  std::deque<IncomingNote> notes_;
};

}  // namespace

std::unique_ptr<Transport> open_mpi_transport() { return std::make_unique<MpiTransport>(); }

}  // namespace megatron::comm
