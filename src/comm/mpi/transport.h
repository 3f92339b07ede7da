// Moves bytes between the processes of a run. Everything is called from one thread, nothing blocks except opening and
// close().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace megatron::comm {

class Transport {
 public:
  using Ticket = std::int64_t;

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int ranks_on_this_machine() const = 0;

  /// Data: matched in order per (sender, receiver, tag), tags in [0, kNumTags). Memory must live until test() says
  /// true, which it says once per ticket. At most kMaxBytes at a time. Throws CommError.
  static constexpr int kNumTags = 30000;
  static constexpr std::int64_t kMaxBytes = std::int64_t{1} << 30;
  virtual Ticket send(int to, int tag, const void* data, std::int64_t bytes) = 0;
  virtual Ticket receive(int from, int tag, void* data, std::int64_t bytes) = 0;
  virtual bool test(Ticket ticket) = 0;

  /// Notes: small messages of any length, apart from data, in order per sender. `note` must live until test() says
  /// true.
  virtual Ticket send_note(int to, const std::vector<std::byte>& note) = 0;
  /// The next note that has come, from anybody; false when there is none.
  virtual bool next_note(int& from, std::vector<std::byte>& note) = 0;

  /// The orderly end; all processes call it.
  virtual void close() = 0;
  /// Ends all processes of the run at once, this one with `exit_status`. Does not return.
  virtual void abort(int exit_status) = 0;
};

/// Called once, on the thread that will make all calls.
using TransportFactory = std::function<std::unique_ptr<Transport>()>;

/// Opens the MPI library and joins the other processes. Throws ConfigError where there is none.
std::unique_ptr<Transport> open_mpi_transport();

}  // namespace megatron::comm
