// What this machine offers to the run: processor cores, memory, instruction sets, time since the process started.
#pragma once

#include <cstdint>
#include <string>

namespace megatron::train {

/// Cores that this process may use: those of its affinity mask, cut by the processor quota of its control group
/// (rounded down, at least 1).
int usable_cores();

/// Threads of one rank: `requested` if > 0, else usable cores ÷ ranks on this machine, at least 1.
int threads_per_rank(int requested, int ranks_on_this_machine);

/// How often an idle worker looks for work before it sleeps: 0 where ranks × threads exceed the cores.
int worker_spin(int threads, int ranks_on_this_machine);

/// Bytes of physical memory, of swap, and of memory available now; 0 where the system does not say.
std::int64_t total_memory_bytes();
std::int64_t total_swap_bytes();
std::int64_t available_memory_bytes();

/// Largest resident size of this process so far, in bytes.
std::int64_t peak_resident_bytes();

/// Bytes free on the file system that holds `directory` (or its nearest existing parent); −1 if unknown.
std::int64_t free_disk_bytes(const std::string& directory);

/// Seconds since the kernel started this process (10 ms resolution).
double seconds_since_process_start();

/// Model name of the processor, "unknown" where the system does not say.
std::string processor_name();

/// Seconds on a clock that never goes back.
double monotonic_seconds();

}  // namespace megatron::train
