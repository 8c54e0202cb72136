#include "net/internal/dial.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace varda::net::internal {
namespace {

int look_up(const std::string& host, int port, int flags, std::vector<Address>& out) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return error;
  for (const addrinfo* item = found; item; item = item->ai_next) {
    if (item->ai_addrlen > sizeof(sockaddr_storage)) continue;
    Address address;
    std::memcpy(&address.storage, item->ai_addr, item->ai_addrlen);
    address.size = item->ai_addrlen;
    out.push_back(address);
  }
  ::freeaddrinfo(found);
  return 0;
}

}  // namespace

Waiter::Waiter() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

void Waiter::Wake::operator()() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof(one));
}

void Waiter::attach(const std::stop_token& stop) {
  detach();
  if (!stop.stop_possible()) return;
  stop_ = stop;
  callback_.emplace(stop, Wake{event_.get()});
}

void Waiter::detach() {
  if (!callback_) return;
  callback_.reset();
  const std::stop_token stop = std::exchange(stop_, {});
  if (!stop.stop_requested()) return;  // then the event was not written
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = ::read(event_.get(), &count, sizeof(count));
}

Status Waiter::wait(const Context& ctx, int fd, For what) {
  short events = POLLOUT | POLLIN;
  if (what == For::kRead) events = POLLIN;
  if (what == For::kWrite) events = POLLOUT;
  pollfd polled[2] = {{fd, events, 0}, {event_.get(), POLLIN, 0}};
  while (true) {
    TRY_VOID(ctx.check());
    timespec left{};
    const timespec* timeout = nullptr;
    if (ctx.deadline()) {
      const auto remaining = std::max(Duration::zero(), *ctx.deadline() - system_clock().now());
      const auto nanoseconds =
          std::chrono::duration_cast<std::chrono::nanoseconds>(remaining).count();
      left = {.tv_sec = nanoseconds / 1'000'000'000, .tv_nsec = nanoseconds % 1'000'000'000};
      timeout = &left;
    }
    const int count = ::ppoll(polled, 2, timeout, nullptr);
    if (count < 0 && errno != EINTR)
      return Error(Code::kInternal, std::string("poll: ") + std::strerror(errno));
    if (count > 0 && polled[0].revents != 0) return {};
    // Woken without a stop: a leftover wake-up of the previous request.
    if (count > 0 && !ctx.stopped()) {
      std::uint64_t taken = 0;
      [[maybe_unused]] const ssize_t size = ::read(event_.get(), &taken, sizeof(taken));
    }
  }
}

std::vector<Address> numeric_addresses(const std::string& host, int port) {
  std::vector<Address> addresses;
  look_up(host, port, AI_NUMERICHOST | AI_NUMERICSERV, addresses);
  return addresses;
}

Result<std::vector<Address>> resolve(const Context& ctx, const std::string& host, int port,
                                     Lookups* lookups) {
  const auto failed = [&](int error) {
    return Error(Code::kUnavailable, "cannot resolve " + host + ": " + ::gai_strerror(error));
  };
  std::vector<Address> addresses = numeric_addresses(host, port);
  if (!addresses.empty()) return addresses;
  if (host == "localhost") {
    look_up("127.0.0.1", port, AI_NUMERICHOST | AI_NUMERICSERV, addresses);
    look_up("::1", port, AI_NUMERICHOST | AI_NUMERICSERV, addresses);
    return addresses;
  }
  // Never destroyed, because threads may remain when the process ends.
  static Lookups& of_the_system = *new Lookups([](const std::string& name, int at) {
    Lookups::Found out;
    out.error = look_up(name, at, AI_NUMERICSERV | AI_ADDRCONFIG, out.addresses);
    return out;
  });
  TRY(Lookups::Found found, (lookups != nullptr ? *lookups : of_the_system).find(ctx, host, port));
  if (found.error != 0) return failed(found.error);
  return std::move(found.addresses);
}

Result<Fd> connect_any(const Context& ctx, Waiter& waiter, const std::vector<Address>& addresses) {
  Error last(Code::kUnavailable, "no address to connect to");
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    TRY_VOID(ctx.check());
    auto fd = start_connect(addresses[i]);
    if (!fd.ok()) {
      last = std::move(fd).error();
      continue;
    }
    // A silent address must leave time for the remaining addresses.
    Context attempt = ctx;
    if (ctx.deadline() && i + 1 < addresses.size())
      attempt = ctx.with_timeout((*ctx.deadline() - system_clock().now()) / 2);
    if (Status ready = waiter.wait(attempt, fd->get(), Waiter::For::kWrite); !ready.ok()) {
      if (ctx.stopped()) return ready.error();
      last = Error(Code::kUnavailable, "cannot connect to " + addresses[i].str() + ": no answer");
      continue;
    }
    if (const int error = socket_error(fd->get()); error != 0) {
      last = Error(Code::kUnavailable,
                   "cannot connect to " + addresses[i].str() + ": " + std::strerror(error));
      continue;
    }
    return std::move(*fd);
  }
  return last;
}

}  // namespace varda::net::internal
