#include <cerrno>
#include <map>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include "base/mutex.h"
#include "os/internal/posix.h"
#include "os/process.h"

namespace varda::os {
namespace {

using internal::Descriptor;

// Fallback for kernels without pidfds (before 5.3, some sandboxes).
constexpr int kPollMilliseconds = 200;

class EpollExitWatch final : public ExitWatch {
 public:
  EpollExitWatch(Descriptor epoll, Descriptor wake, std::function<void(const ProcessId&)> ended)
      : ended_(std::move(ended)),
        epoll_(std::move(epoll)),
        wake_(std::move(wake)),
        thread_([this](std::stop_token stop) { run(stop); }) {}
  ~EpollExitWatch() override {
    thread_.request_stop();
    wake();
    thread_.join();
  }

  void add(const ProcessId& id) override {
    Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, id.pid, 0)));
    if (!alive(id)) return ended_(id);
    MutexLock lock(mutex_);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = process.get();
    if (!process.ok() || ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, process.get(), &event) != 0) {
      polled_.push_back(id);
      wake();
      return;
    }
    const int fd = process.get();
    watched_.emplace(fd, Watched{std::move(process), id});
  }

 private:
  struct Watched {
    Descriptor process;
    ProcessId id;
  };

  void wake() {
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof(one));
  }

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      epoll_event events[16];
      const int count = ::epoll_wait(epoll_.get(), events, 16, timeout());
      std::vector<ProcessId> exited = polled_that_ended();
      for (int i = 0; i < count; ++i) {
        if (events[i].data.fd == wake_.get()) {
          std::uint64_t drained = 0;
          (void)!::read(wake_.get(), &drained, sizeof(drained));
          continue;
        }
        MutexLock lock(mutex_);
        const auto found = watched_.find(events[i].data.fd);
        if (found == watched_.end()) continue;
        exited.push_back(found->second.id);
        watched_.erase(found);  // closing removes it from the epoll set
      }
      for (const ProcessId& id : exited) ended_(id);
    }
  }

  int timeout() {
    MutexLock lock(mutex_);
    return polled_.empty() ? -1 : kPollMilliseconds;
  }

  std::vector<ProcessId> polled_that_ended() {
    MutexLock lock(mutex_);
    std::vector<ProcessId> exited, left;
    for (const ProcessId& id : polled_) (alive(id) ? left : exited).push_back(id);
    polled_ = std::move(left);
    return exited;
  }

  const std::function<void(const ProcessId&)> ended_;
  const Descriptor epoll_, wake_;
  Mutex mutex_;
  std::map<int, Watched> watched_ GUARDED_BY(mutex_);
  std::vector<ProcessId> polled_ GUARDED_BY(mutex_);
  std::jthread thread_;  // last, because it uses all of the above
};

}  // namespace

Result<std::unique_ptr<ExitWatch>> ExitWatch::create(std::function<void(const ProcessId&)> ended) {
  Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC)), wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.ok() || !wake.ok()) return internal::errno_error(errno, "watch processes");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake.get();
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0)
    return internal::errno_error(errno, "watch processes");
  return std::make_unique<EpollExitWatch>(std::move(epoll), std::move(wake), std::move(ended));
}

}  // namespace varda::os
