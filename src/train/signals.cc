#include "train/signals.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/check.h"

namespace megatron::train {
namespace {

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set, number);
  return set;
}

}  // namespace

std::string signal_name(int number) {
  switch (number) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return str_cat("signal ", number);
  }
}

SignalWatcher::SignalWatcher(bool announce) : announce_(announce) {
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal_descriptor_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  MEGATRON_CHECK_GE(signal_descriptor_, 0, "signalfd failed");
  MEGATRON_CHECK_EQ(pipe(wake_), 0, "pipe failed");
  thread_ = std::thread([this] { watch(); });
}

SignalWatcher::~SignalWatcher() {
  const char byte = 0;
  if (write(wake_[1], &byte, 1) == 1) thread_.join();
  for (const int descriptor : {wake_[0], wake_[1], signal_descriptor_}) close(descriptor);
  // A signal that came after the last look must not strike when the mask opens: it has been honoured by ending.
  const sigset_t set = watched_signals();
  const timespec no_wait{0, 0};
  while (sigtimedwait(&set, nullptr, &no_wait) > 0) {
  }
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

Interrupted::Interrupted(int signal)
    : Error(str_cat("stopped by ", signal_name(signal), " before the first step")), signal_(signal) {}

void SignalWatcher::watch() {
  for (;;) {
    pollfd descriptors[2] = {{signal_descriptor_, POLLIN, 0}, {wake_[0], POLLIN, 0}};
    if (poll(descriptors, 2, -1) < 0 && errno != EINTR) return;
    if (descriptors[1].revents != 0) return;
    signalfd_siginfo info;
    while (read(signal_descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      const int number = static_cast<int>(info.ssi_signo);
      const std::string name = signal_name(number);
      int none = 0;
      const bool first = received_.compare_exchange_strong(none, number);
      if (finished_.load(std::memory_order_relaxed)) continue;
      if (announce_)
        std::fprintf(stderr,
                     first ? "received %s: stopping after this step (a second signal ends at once)\n"
                           : "received %s again: ending at once\n",
                     name.c_str());
      if (!first) std::_Exit(128 + number);
    }
  }
}

}  // namespace megatron::train
