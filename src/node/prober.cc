#include "node/prober.h"

#include <arpa/inet.h>
#include <cerrno>
#include <deque>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "base/mutex.h"
#include "net/client.h"

namespace varda::node {
namespace {

constexpr std::uint64_t kBodyBytesMax = 64u << 10;

/// "127.0.0.1:80", "[::1]:80"
std::string peer_of(const Probe& probe) {
  const bool v6 = probe.host.find(':') != std::string::npos && !probe.host.starts_with('[');
  return (v6 ? "[" + probe.host + "]" : probe.host) + ":" + std::to_string(probe.port);
}

Status probe_tcp(const Probe& probe) {
  sockaddr_storage where{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(where);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(where);
  socklen_t size_of_address = 0;
  if (::inet_pton(AF_INET, probe.host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(probe.port));
    size_of_address = sizeof v4;
  } else if (::inet_pton(AF_INET6, probe.host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<std::uint16_t>(probe.port));
    size_of_address = sizeof v6;
  } else {
    return Error(Code::kInvalid, "not an IP address: " + probe.host);
  }
  const int fd = ::socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return Error(Code::kExhausted, "socket");
  int error = 0;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&where), size_of_address) != 0) error = errno;
  if (error == EINPROGRESS) {
    pollfd ready{.fd = fd, .events = POLLOUT, .revents = 0};
    socklen_t size = sizeof(error);
    if (::poll(&ready, 1, static_cast<int>(probe.timeout.count())) <= 0) {
      error = ETIMEDOUT;
    } else {
      ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
  }
  ::close(fd);
  if (error == 0) return {};
  return Error(Code::kUnavailable,
               "dial tcp " + peer_of(probe) + ": " + std::generic_category().message(error));
}

class ThreadProber final : public Prober {
 public:
  ThreadProber(Driver& driver, ProberOptions options) : driver_(driver), options_(options) {}
  ~ThreadProber() override {
    stop_.request_stop();
    {
      MutexLock lock(mutex_);
      queue_.clear();
      closing_ = true;
      changed_.notify_all();
    }
    threads_.clear();
  }

  void start(Probe probe, Done done) override {
    {
      MutexLock lock(mutex_);
      if (!closing_ && queue_.size() < options_.queue_max) {
        if (threads_.empty()) {
          net::ClientOptions client;
          client.tls.verify = false;  // like a kubelet: a probe checks health, not identity
          client.idle_connections_max = 0;
          client.tcp_keepalive = false;
          http_ = net::make_client(client);
          for (std::size_t i = 0; i < options_.threads; ++i)
            threads_.emplace_back([this] { work(); });
        }
        queue_.emplace_back(std::move(probe), std::move(done));
        changed_.notify_one();
        return;
      }
    }
    done(Error(Code::kExhausted, "too many probes are waiting"));
  }

 private:
  void work() {
    for (;;) {
      std::pair<Probe, Done> item;
      {
        MutexLock lock(mutex_);
        while (queue_.empty() && !closing_) changed_.wait(mutex_);
        if (closing_) return;
        item = std::move(queue_.front());
        queue_.pop_front();
      }
      Status result = run(item.first);
      MutexLock lock(mutex_);
      if (closing_) return;
      // Called under the lock, so that no call starts after the destructor has begun. `done` only
      // queues the result.
      item.second(std::move(result));
    }
  }

  Status run(const Probe& probe) {
    const Context ctx = Context(stop_.get_token()).with_timeout(probe.timeout);
    switch (probe.kind) {
      case Probe::Kind::kTcp:
        return probe_tcp(probe);
      case Probe::Kind::kHttp:
        return probe_http(ctx, probe);
      case Probe::Kind::kExec:
        break;
    }
    TRY(const int code, driver_.exec(ctx, probe.config, probe.command));
    if (code != 0) return Error(Code::kUnavailable, "command exited with " + std::to_string(code));
    return {};
  }

  Status probe_http(const Context& ctx, const Probe& probe) {
    net::ClientRequest request;
    request.url = (probe.scheme == "HTTPS" ? "https://" : "http://") + peer_of(probe) +
                  (probe.path.starts_with("/") ? "" : "/") + probe.path;
    request.headers = {{"User-Agent", std::string("kube-probe/varda-") + VARDA_VERSION},
                       {"Accept", "*/*"}};
    for (const auto& [name, value] : probe.headers) request.headers.set(name, value);
    request.max_response_bytes = kBodyBytesMax;
    const auto answer = http_->call(ctx, std::move(request));
    // A body above the limit is an answer, too.
    if (!answer.ok())
      return answer.error().code() == Code::kExhausted ? Status() : Status(answer.error());
    if (answer->status >= 200 && answer->status < 400) return {};
    return Error(Code::kUnavailable,
                 "HTTP probe failed with statuscode: " + std::to_string(answer->status));
  }

  Driver& driver_;
  const ProberOptions options_;
  std::stop_source stop_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::pair<Probe, Done>> queue_ GUARDED_BY(mutex_);
  bool closing_ GUARDED_BY(mutex_) = false;
  std::unique_ptr<net::HttpClient> http_;  // created before the threads that use it
  std::vector<std::jthread> threads_;      // started once, under mutex_
};

}  // namespace

std::unique_ptr<Prober> make_prober(Driver& driver, ProberOptions options) {
  return std::make_unique<ThreadProber>(driver, options);
}

}  // namespace varda::node
