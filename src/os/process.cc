#include "os/process.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "os/internal/posix.h"
#include "os/internal/proc.h"

namespace varda::os {
namespace {

using internal::Descriptor;
using internal::errno_error;

constexpr auto kPollWithoutPidfd = std::chrono::milliseconds(50);

Error exited(const ProcessId& id) {
  return Error(Code::kNotFound, "process " + std::to_string(id.pid) + " has ended");
}

int milliseconds_left(const Context& ctx) {
  if (!ctx.deadline()) return -1;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(*ctx.deadline() - system_clock().now()).count();
  return left < 0 ? 0 : static_cast<int>(std::min<std::int64_t>(left, 3'600'000));
}

}  // namespace

std::optional<internal::ProcStat> internal::read_proc_stat(pid_t pid) {
  if (pid <= 0) return std::nullopt;
  char path[48];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(pid));
  Descriptor descriptor(::open(path, O_RDONLY | O_CLOEXEC));
  if (!descriptor.ok()) return std::nullopt;
  char text[1024];
  const ssize_t count = retry([&] { return ::read(descriptor.get(), text, sizeof(text) - 1); });
  if (count <= 0) return std::nullopt;
  text[count] = '\0';
  // The name in field 2 may contain ')' and spaces; only the text after the last ')' is regular.
  const std::string_view line(text, static_cast<std::size_t>(count));
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= line.size()) return std::nullopt;
  ProcStat stat;
  const char state = line[name_end + 2];
  std::uint64_t threads = 1;
  std::size_t at = name_end + 2;
  for (int field = 3; field < 22; ++field) {
    if (field == 20) threads = std::strtoull(line.data() + at, nullptr, 10);
    at = line.find(' ', at);
    if (at == std::string_view::npos) return std::nullopt;
    ++at;
  }
  stat.ended = state == 'X' || (state == 'Z' && threads <= 1);
  stat.start_ticks = std::strtoull(line.data() + at, nullptr, 10);
  return stat;
}

std::optional<ProcessId> find_process(pid_t pid) {
  const auto stat = internal::read_proc_stat(pid);
  if (!stat || stat->ended) return std::nullopt;
  return ProcessId{.pid = pid, .start_ticks = stat->start_ticks};
}

Status signal_process(const ProcessId& id, int signal, bool group) {
  const auto stat = internal::read_proc_stat(id.pid);
  if (group) {
    // A group outlives its leader and keeps its number. It is the old group unless a new process
    // has the pid.
    if (stat && stat->start_ticks != id.start_ticks) return exited(id);
    if (::kill(-id.pid, signal) == 0) return {};
    if (errno == ESRCH) return exited(id);
    return errno_error(errno, "signal process group " + std::to_string(id.pid));
  }
  if (!stat || stat->start_ticks != id.start_ticks || stat->ended) return exited(id);
  if (::kill(id.pid, signal) == 0) return {};
  if (errno == ESRCH) return exited(id);
  return errno_error(errno, "signal process " + std::to_string(id.pid));
}

Status wait_for_exit(const Context& ctx, const ProcessId& id) {
  Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, id.pid, 0)));
  if (!alive(id)) return {};
  if (!process.ok()) {
    // Kernels before 5.3, or a sandbox without pidfds.
    while (alive(id)) TRY_VOID(ctx.sleep_for(kPollWithoutPidfd));
    return {};
  }
  Descriptor stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop.ok()) return errno_error(errno, "eventfd");
  const std::stop_callback wake(ctx.stop_token(), [fd = stop.get()] {
    const std::uint64_t one = 1;
    (void)!::write(fd, &one, sizeof(one));
  });
  for (;;) {
    pollfd fds[2] = {{.fd = process.get(), .events = POLLIN, .revents = 0},
                     {.fd = stop.get(), .events = POLLIN, .revents = 0}};
    const int ready = ::poll(fds, 2, milliseconds_left(ctx));
    if (ready < 0 && errno != EINTR) return errno_error(errno, "poll");
    if (ready > 0 && fds[0].revents != 0) return {};
    TRY_VOID(ctx.check());
  }
}

Path self_path() {
  std::error_code error;
  Path path = std::filesystem::read_symlink("/proc/self/exe", error);
  // A replaced program keeps its path: new children start the new file there.
  constexpr std::string_view kDeleted = " (deleted)";
  if (path.native().ends_with(kDeleted))
    path = path.native().substr(0, path.native().size() - kDeleted.size());
  return path;
}

namespace {
std::atomic<int> stopped_by{0};
}  // namespace

int stopping_signal() { return stopped_by; }

std::stop_token stop_on_signals() {
  static std::stop_source source;
  static const bool started = [] {
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(
        SIGXFSZ,
        SIG_IGN);  // a write beyond `ulimit -f` then fails with EFBIG, handled like a full disk
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    // SIGHUP: the terminal is gone. nohup ignores it, and blocking an ignored signal would deliver
    // it anyway.
    struct sigaction hang_up;
    if (::sigaction(SIGHUP, nullptr, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN)
      sigaddset(&signals, SIGHUP);
    ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::thread([signals] {
      int number = 0;
      while (::sigwait(&signals, &number) != 0) continue;
      stopped_by = number;
      source.request_stop();
      // A second Ctrl-C exits at once; further SIGTERMs have no effect.
      while (::sigwait(&signals, &number) != 0 || number != SIGINT) continue;
      ::_exit(130);
    }).detach();
    return true;
  }();
  (void)started;
  return source.get_token();
}

}  // namespace varda::os
