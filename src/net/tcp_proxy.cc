#include "net/tcp_proxy.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <future>
#include <sys/socket.h>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "base/mutex.h"
#include "net/internal/addresses.h"
#include "net/internal/reactor.h"
#include "net/internal/socket.h"

namespace varda::net {

using internal::Address;
using internal::Fd;
using internal::Reactor;

class ProxyThread {
 public:
  ProxyThread() : reactor_(Reactor::create()), thread_([this] { reactor_->run(); }) {}
  ~ProxyThread() {
    reactor_->stop();
    thread_.join();
  }
  Reactor& reactor() { return *reactor_; }
  /// Runs `work` on the thread and waits until it has finished.
  void run(std::function<void()> work) {
    std::promise<void> done;
    reactor_->post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

 private:
  const std::unique_ptr<Reactor> reactor_;
  std::thread thread_;
};

std::shared_ptr<ProxyThread> make_proxy_thread() { return std::make_shared<ProxyThread>(); }

namespace {

constexpr std::size_t kBufferBytes = 32 << 10;

class Balancer;

/// One end of a forwarded connection.
struct End final : Reactor::Listener {
  std::function<void()> readable, writable;
  std::unique_ptr<Reactor::Watch> watch;
  std::string pending;  // read here, not yet written to the other end
  std::size_t sent = 0;
  bool read_ended = false;   // the peer sends no more
  bool write_ended = false;  // the peer knows that we send no more

  void on_readable() override { readable(); }
  void on_writable() override { writable(); }
};

/// A client's connection and its backend's connection. Used on the proxy's thread only.
class Session {
 public:
  Session(Balancer& balancer, std::uint64_t id, Fd client, std::string peer,
          std::vector<Address> backends);
  void start() { connect_next(); }
  void close();
  SteadyTime deadline() const { return deadline_; }
  SteadyTime idle_since() const { return idle_since_; }
  const std::string& peer() const { return peer_; }
  /// The backend did not answer in time.
  void give_up_backend();

 private:
  void connect_next();
  void connected();
  /// Moves as many bytes as possible from one end to the other.
  void pump(End& from, End& to);

  Balancer& balancer_;
  const std::uint64_t id_;
  const std::string peer_;
  std::vector<Address> backends_;  // backends not tried yet
  std::size_t next_ = 0;
  bool connecting_ = false;
  bool closed_ = false;
  SteadyTime deadline_ = SteadyTime::max();
  SteadyTime idle_since_ = system_clock().now();  // when bytes last moved
  End client_, backend_;
};

class Balancer final : public TcpProxy, private Reactor::Listener {
 public:
  Balancer(Options options, const Address& bound, Fd listener)
      : options_(std::move(options)),
        bound_(bound),
        thread_(options_.thread ? options_.thread : make_proxy_thread()) {
    clients_.limit(options_.connections_per_address_max);
    thread_->run([&] {
      listener_ = reactor().watch(listener.release(), *this);
      listener_->want_read();
    });
  }
  ~Balancer() override { stop(); }

  std::string address() const override { return bound_.str(); }
  int port() const override { return bound_.port(); }
  std::size_t connections() const override { return open_.load(); }

  Status set_backends(std::vector<std::string> backends) override {
    std::vector<Address> addresses;
    for (const std::string& text : backends) {
      TRY(Address address, Address::parse(text));
      addresses.push_back(address);
    }
    MutexLock lock(mutex_);
    names_ = std::move(backends);
    addresses_ = std::move(addresses);
    return {};
  }
  std::vector<std::string> backends() const override {
    MutexLock lock(mutex_);
    return names_;
  }

  void finish() override {
    MutexLock lock(stop_mutex_);
    if (stopped_) return;
    thread_->run([this] {
      if (!listener_) return;
      for (std::uint64_t before = 0;
           before != next_id_;) {  // takes the connections that the kernel has accepted already
        before = next_id_;
        on_readable();
      }
      listener_.reset();
    });
  }

  void stop() override {
    MutexLock lock(stop_mutex_);
    if (std::exchange(stopped_, true)) return;
    thread_->run([this] {
      closing_ = true;
      listener_.reset();
      std::vector<Session*> all;
      for (auto& [id, session] : sessions_) all.push_back(session.get());
      for (Session* session : all) session->close();
    });
    // One more round of the loop lets running callbacks see that their session is gone. Work still
    // queued for this object finds it expired, on the same thread, and so never during destruction.
    thread_->run([this] {
      dead_.clear();
      alive_.reset();
    });
  }

  Reactor& reactor() { return thread_->reactor(); }
  std::chrono::milliseconds connect_timeout() const { return options_.connect_timeout; }

  void bury(std::uint64_t id) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) return;
    clients_.remove(found->second->peer());
    dead_.push_back(std::move(found->second));
    sessions_.erase(found);
    open_.store(sessions_.size());
    if (closing_) return;
    if (dead_.size() == 1) {
      reactor().post([this, alive = std::weak_ptr<int>(alive_)] {
        if (!alive.expired()) dead_.clear();
      });
    }
  }

  /// Checks deadlines while some session is connecting.
  void watch_clock() {
    if (std::exchange(ticking_, true)) return;
    const auto period = std::clamp(options_.connect_timeout / 4, std::chrono::milliseconds(5),
                                   std::chrono::milliseconds(500));
    reactor().tick(period, [this, alive = std::weak_ptr<int>(alive_)] {
      if (alive.expired()) return false;
      const SteadyTime now = system_clock().now();
      std::vector<Session*> late;
      ticking_ = false;
      for (auto& [id, session] : sessions_) {
        if (session->deadline() <= now) late.push_back(session.get());
        if (session->deadline() != SteadyTime::max()) ticking_ = true;
      }
      for (Session* session : late) session->give_up_backend();
      return ticking_;
    });
  }

 private:
  void on_readable() override {
    for (int i = 0; i < 64; ++i) {
      Address peer;
      Fd fd = internal::accept_one(listener_->fd(), peer);
      if (!fd) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
          listener_->want_read();
          return;
        }
        reactor().tick(std::chrono::milliseconds(100), [this, alive = std::weak_ptr<int>(alive_)] {
          if (!alive.expired() && listener_) listener_->want_read();
          return false;
        });
        return;
      }
      std::string client = peer.str();
      if (!clients_.add(client)) continue;
      if (sessions_.size() >= options_.connections_max) close_longest_idle();
      internal::set_no_delay(fd.get());
      std::vector<Address> order;
      {
        MutexLock lock(mutex_);
        const std::size_t count = addresses_.size();
        for (std::size_t k = 0; k < count; ++k) order.push_back(addresses_[(turn_ + k) % count]);
        ++turn_;
      }
      const std::uint64_t id = next_id_++;
      auto session =
          std::make_unique<Session>(*this, id, std::move(fd), std::move(client), std::move(order));
      Session& started = *session;
      sessions_.emplace(id, std::move(session));
      open_.store(sessions_.size());
      started.start();
    }
    if (listener_) listener_->want_read();
  }
  void on_writable() override {}

  void close_longest_idle() {
    Session* longest = nullptr;
    for (auto& [id, session] : sessions_)
      if (longest == nullptr || session->idle_since() < longest->idle_since())
        longest = session.get();
    if (longest != nullptr) longest->close();
  }

  const Options options_;
  const Address bound_;
  const std::shared_ptr<ProxyThread> thread_;

  mutable Mutex mutex_;
  std::vector<std::string> names_ GUARDED_BY(mutex_);
  std::vector<Address> addresses_ GUARDED_BY(mutex_);
  std::size_t turn_ GUARDED_BY(mutex_) = 0;
  Mutex stop_mutex_;
  bool stopped_ GUARDED_BY(stop_mutex_) = false;
  std::atomic<std::size_t> open_{0};

  // These belong to the thread.
  std::unique_ptr<Reactor::Watch> listener_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  std::vector<std::unique_ptr<Session>> dead_;
  internal::Addresses clients_;
  std::uint64_t next_id_ = 1;
  bool ticking_ = false;
  bool closing_ = false;
  std::shared_ptr<int> alive_ =
      std::make_shared<int>();  // posted work checks that this object still exists
};

Session::Session(Balancer& balancer, std::uint64_t id, Fd client, std::string peer,
                 std::vector<Address> backends)
    : balancer_(balancer), id_(id), peer_(std::move(peer)), backends_(std::move(backends)) {
  client_.watch = balancer.reactor().watch(client.release(), client_);
  client_.readable = [this] { pump(client_, backend_); };
  client_.writable = [this] { pump(backend_, client_); };
  backend_.readable = [this] { pump(backend_, client_); };
  backend_.writable = [this] { connecting_ ? connected() : pump(client_, backend_); };
}

void Session::connect_next() {
  while (next_ < backends_.size()) {
    auto fd = internal::start_connect(backends_[next_++]);
    if (!fd.ok()) continue;
    connecting_ = true;
    backend_.watch = balancer_.reactor().watch(fd->release(), backend_);
    backend_.watch->want_write();
    deadline_ = system_clock().now() + balancer_.connect_timeout();
    balancer_.watch_clock();
    return;
  }
  close();
}

void Session::give_up_backend() {
  if (closed_ || !connecting_) return;
  connecting_ = false;
  deadline_ = SteadyTime::max();
  backend_.watch.reset();
  connect_next();
}

void Session::connected() {
  if (internal::socket_error(backend_.watch->fd()) != 0) return give_up_backend();
  connecting_ = false;
  deadline_ = SteadyTime::max();
  pump(client_, backend_);
  if (!closed_) pump(backend_, client_);
}

void Session::pump(End& from, End& to) {
  if (closed_ || connecting_ || !from.watch || !to.watch) return;
  for (int round = 0; round < 8; ++round) {
    while (from.sent < from.pending.size()) {
      const ssize_t count = ::send(to.watch->fd(), from.pending.data() + from.sent,
                                   from.pending.size() - from.sent, MSG_NOSIGNAL);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) return to.watch->want_write();
      if (count < 0) return close();
      from.sent += static_cast<std::size_t>(count);
      idle_since_ = system_clock().now();
    }
    from.sent = 0;
    from.pending.clear();
    if (from.read_ended) {
      if (!std::exchange(to.write_ended, true)) ::shutdown(to.watch->fd(), SHUT_WR);
      if (client_.read_ended && backend_.read_ended && client_.write_ended && backend_.write_ended)
        close();
      return;
    }
    from.pending.resize(kBufferBytes);
    const ssize_t count = ::recv(from.watch->fd(), from.pending.data(), kBufferBytes, 0);
    const int error = errno;
    from.pending.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    if (count < 0 && (error == EAGAIN || error == EINTR)) {
      std::string().swap(from.pending);  // an idle connection holds no buffer
      return from.watch->want_read();
    }
    if (count < 0) return close();
    if (count == 0) from.read_ended = true;
    idle_since_ = system_clock().now();
  }
  // Other sessions get a turn now. Pending bytes are written before more are read, because they may
  // be the last.
  if (from.pending.empty() && !from.read_ended) return from.watch->want_read();
  to.watch->want_write();
}

void Session::close() {
  if (std::exchange(closed_, true)) return;
  deadline_ = SteadyTime::max();
  client_.watch.reset();
  backend_.watch.reset();
  balancer_.bury(id_);
}

}  // namespace

Result<std::unique_ptr<TcpProxy>> TcpProxy::create(Options options,
                                                   std::vector<std::string> backends) {
  if (options.connections_max == 0)
    return Error(Code::kInvalid, "connections_max must be at least 1");
  if (options.connections_per_address_max == 0)
    options.connections_per_address_max = std::max<std::size_t>(options.connections_max / 2, 1);
  TRY(Address address, Address::parse(options.listen));
  TRY(Fd listener, internal::listen_on(address));
  if (!address.is_unix()) address = internal::local_address(listener.get());
  auto proxy = std::make_unique<Balancer>(std::move(options), address, std::move(listener));
  TRY_VOID(proxy->set_backends(std::move(backends)));
  return std::unique_ptr<TcpProxy>(std::move(proxy));
}

}  // namespace varda::net
