#include "net/splicer.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <future>
#include <sys/socket.h>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "net/internal/reactor.h"
#include "net/internal/tunnel_parts.h"

namespace varda::net {

using internal::Address;
using internal::Fd;
using internal::IoResult;
using internal::Reactor;

struct Splicer::Shared {
  Options options;
  std::atomic<std::size_t> pairs{0};
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> stopped{false};
  std::vector<std::unique_ptr<Lane>> lanes;
};

namespace {

constexpr std::size_t kScratchBytes = 64 << 10;
constexpr int kRoundsInARow = 8;  // then other pairs of the thread get a turn

}  // namespace

/// One thread and its pairs. Everything but run() and stop() belongs to the thread.
class Splicer::Lane {
 public:
  explicit Lane(Shared& shared)
      : shared_(shared), reactor_(Reactor::create()), scratch_(kScratchBytes) {
    thread_ = std::thread([this] {
      this_lane = this;
      reactor_->run();
    });
  }
  ~Lane() { stop(); }

  Reactor& reactor() { return *reactor_; }
  /// Runs `work` on the thread and waits until it has finished; after stop() on this thread.
  void run(const std::function<void()>& work) EXCLUDES(mutex_) {
    if (this_lane == this) return work();
    const MutexLock lock(mutex_);
    if (ended_) return work();
    post_and_wait(work);
  }

  void add(std::uint64_t id, Pair pair);
  void close(std::uint64_t id);
  void dial(const Address& address, std::chrono::milliseconds timeout, OnDialed then);
  void stop() EXCLUDES(mutex_);

 private:
  class Session;
  class Dial;
  void bury(std::uint64_t id);
  void end_dial(Dial& dial, Result<std::unique_ptr<Tunnel>> result);
  void post_and_wait(const std::function<void()>& work) {
    std::promise<void> done;
    reactor_->post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }
  /// Looks at the clock while there are pairs or dials. Without them the thread sleeps.
  void watch_clock();
  void look_at_clock();
  void sweep_later();

  Shared& shared_;
  const std::unique_ptr<Reactor> reactor_;
  std::vector<char> scratch_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Session>> sessions_;
  std::vector<std::unique_ptr<Session>> dead_;
  std::unordered_map<Dial*, std::unique_ptr<Dial>> dials_;
  std::vector<std::unique_ptr<Dial>> dead_dials_;
  bool ticking_ = false;
  Mutex mutex_;
  bool ended_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
  static thread_local Lane* this_lane;
};

thread_local Splicer::Lane* Splicer::Lane::this_lane = nullptr;

class Splicer::Lane::Session {
 public:
  Session(Lane& lane, std::uint64_t id, Pair pair)
      : lane_(lane), id_(id), until_(pair.until), on_end_(std::move(pair.on_end)) {
    ends_[0].open(*this, std::move(pair.first));
    ends_[1].open(*this, std::move(pair.second));
    forward_.from = backward_.to = &ends_[0];
    forward_.to = backward_.from = &ends_[1];
    preamble_bytes_ = pair.preamble.size();
    forward_.pending = std::move(pair.preamble) + std::move(ends_[0].unread);
    backward_.pending = std::move(ends_[1].unread);
  }

  void start() {
    touch();
    pump(forward_);
    pump(backward_);
  }
  void close(End end, const std::string& error = "");
  std::optional<End> overdue(SteadyTime now) const {
    if (until_ && now >= *until_) return End::kExpired;
    if (now - active_ >= lane_.shared_.options.idle_timeout) return End::kIdle;
    return std::nullopt;
  }

 private:
  /// One tunnel of the pair.
  struct EndPoint final : Reactor::Listener {
    Session* session = nullptr;
    std::unique_ptr<internal::Stream> stream;
    std::unique_ptr<Reactor::Watch> watch;
    std::string unread;
    bool read_wants_write = false;  // TLS needs the other readiness first
    bool write_wants_read = false;

    void open(Session& of, std::unique_ptr<Tunnel> tunnel) {
      session = &of;
      Tunnel::Parts& parts = tunnel->parts();
      stream = std::move(parts.stream);
      unread = std::move(parts.unread);
      watch = of.lane_.reactor_->watch(parts.fd.release(), *this);
    }
    void on_readable() override { session->ready(*this, IoResult::Kind::kWantRead); }
    void on_writable() override { session->ready(*this, IoResult::Kind::kWantWrite); }
  };
  /// One direction.
  struct Way {
    EndPoint* from = nullptr;
    EndPoint* to = nullptr;
    std::string pending;  // read, and not written yet
    std::size_t sent = 0;
    std::uint64_t bytes = 0;  // written in all
    bool read_ended = false;
    bool finished = false;  // the end is passed on
  };
  enum class Written { kAll, kBlocked, kClosed };

  void touch() { active_ = system_clock().now(); }
  void ready(EndPoint& end, IoResult::Kind kind) {
    if (closed_) return;
    Way& out = &end == &ends_[0] ? forward_ : backward_;  // its bytes
    Way& in = &out == &forward_ ? backward_ : forward_;   // bytes for it
    const bool readable = kind == IoResult::Kind::kWantRead;
    bool& other = readable ? end.write_wants_read : end.read_wants_write;
    const bool also = std::exchange(other, false);
    if (!readable || also) pump(in);
    if (!closed_ && (readable || also)) pump(out);
  }
  /// Writes some bytes and counts them.
  Written write(Way& way, std::string_view bytes, std::size_t& sent);
  void pump(Way& way);

  Lane& lane_;
  const std::uint64_t id_;
  const std::optional<SteadyTime> until_;
  std::function<void(const Report&)> on_end_;
  EndPoint ends_[2];
  Way forward_, backward_;
  std::size_t preamble_bytes_ = 0;
  SteadyTime active_;
  bool closed_ = false;
};

Splicer::Lane::Session::Written Splicer::Lane::Session::write(Way& way, std::string_view bytes,
                                                              std::size_t& sent) {
  while (sent < bytes.size()) {
    const IoResult io = way.to->stream->write(bytes.substr(sent), {});
    switch (io.kind) {
      case IoResult::Kind::kBytes:
        sent += io.count;
        way.bytes += io.count;
        touch();
        break;
      case IoResult::Kind::kWantWrite:
        way.to->watch->want_write();
        return Written::kBlocked;
      case IoResult::Kind::kWantRead:
        way.to->write_wants_read = true;
        way.to->watch->want_read();
        return Written::kBlocked;
      case IoResult::Kind::kEnd:
      case IoResult::Kind::kError:
        close(End::kBroken, way.to->stream->error());
        return Written::kClosed;
    }
  }
  return Written::kAll;
}

void Splicer::Lane::Session::pump(Way& way) {
  if (closed_ || way.finished) return;
  std::vector<char>& scratch = lane_.scratch_;
  const std::size_t read_max = std::min(scratch.size(), lane_.shared_.options.buffer_bytes_max);
  for (int round = 0; round < kRoundsInARow; ++round) {
    if (!way.pending.empty()) {
      if (write(way, way.pending, way.sent) != Written::kAll) return;
      std::string().swap(way.pending);  // an idle pair holds no buffer
      way.sent = 0;
    }
    if (way.read_ended) {
      way.finished = true;
      way.to->stream->finish();
      if (forward_.finished && backward_.finished) close(End::kFinished);
      return;
    }
    const IoResult io = way.from->stream->read({scratch.data(), read_max});
    switch (io.kind) {
      case IoResult::Kind::kBytes: {
        touch();
        // Most bytes go from buffer to buffer of the kernel's sockets, without another copy.
        const std::string_view bytes(scratch.data(), io.count);
        std::size_t sent = 0;
        const Written written = write(way, bytes, sent);
        if (written == Written::kAll) break;
        if (written == Written::kBlocked) way.pending.assign(bytes.substr(sent));
        return;
      }
      case IoResult::Kind::kWantRead:
        return way.from->watch->want_read();
      case IoResult::Kind::kWantWrite:
        way.from->read_wants_write = true;
        return way.from->watch->want_write();
      case IoResult::Kind::kEnd:
        way.read_ended = true;
        break;
      case IoResult::Kind::kError:
        return close(End::kBroken, way.from->stream->error());
    }
  }
  lane_.reactor_->post([&lane = lane_, id = id_, forward = &way == &forward_] {
    const auto found = lane.sessions_.find(id);
    if (found == lane.sessions_.end()) return;
    Session& session = *found->second;
    session.pump(forward ? session.forward_ : session.backward_);
  });
}

void Splicer::Lane::Session::close(End end, const std::string& error) {
  if (std::exchange(closed_, true)) return;
  Report report{
      .end = end,
      .forward_bytes = forward_.bytes - std::min<std::uint64_t>(forward_.bytes, preamble_bytes_),
      .backward_bytes = backward_.bytes,
      .error = error};
  for (EndPoint& point : ends_) {
    if (end != End::kFinished) {
      // Without a reset the peer would take the bytes so far for all bytes.
      const linger reset{.l_onoff = 1, .l_linger = 0};
      ::setsockopt(point.watch->fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    }
    point.stream.reset();
    point.watch.reset();
  }
  const auto on_end = std::exchange(on_end_, nullptr);
  lane_.bury(id_);
  if (on_end) on_end(report);
}

/// A connection that is being made.
class Splicer::Lane::Dial final : public Reactor::Listener {
 public:
  Dial(Lane& lane, SteadyTime deadline, std::string address, OnDialed then)
      : lane_(lane), deadline_(deadline), address_(std::move(address)), then_(std::move(then)) {}

  void start(Fd fd) {
    watch_ = lane_.reactor_->watch(fd.release(), *this);
    watch_->want_write();
  }
  void on_readable() override {}
  void on_writable() override {
    if (!watch_) return;
    if (const int error = internal::socket_error(watch_->fd()); error != 0)
      return fail(std::strerror(error));
    Fd fd(watch_->release());
    watch_.reset();
    internal::set_no_delay(fd.get());
    internal::set_keepalive(fd.get());
    lane_.end_dial(*this, internal::plain_tunnel(std::move(fd), address_));
  }
  void fail(const std::string& why) {
    watch_.reset();
    lane_.end_dial(*this, Error(Code::kUnavailable, "cannot connect to " + address_ + ": " + why));
  }
  SteadyTime deadline() const { return deadline_; }
  OnDialed take() { return std::move(then_); }

 private:
  Lane& lane_;
  const SteadyTime deadline_;
  const std::string address_;
  OnDialed then_;
  std::unique_ptr<Reactor::Watch> watch_;
};

void Splicer::Lane::add(std::uint64_t id, Pair pair) {
  if (shared_.stopped.load()) {
    shared_.pairs.fetch_sub(1);
    if (pair.on_end) pair.on_end({.end = End::kClosed, .error = {}});
    return;
  }
  auto session = std::make_unique<Session>(*this, id, std::move(pair));
  Session& started = *session;
  sessions_.emplace(id, std::move(session));
  watch_clock();
  started.start();
}

void Splicer::Lane::close(std::uint64_t id) {
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) found->second->close(End::kClosed);
}

void Splicer::Lane::sweep_later() {
  if (dead_.size() + dead_dials_.size() != 1) return;
  reactor_->post([this] {
    dead_.clear();
    dead_dials_.clear();
  });
}

void Splicer::Lane::bury(std::uint64_t id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  dead_.push_back(std::move(found->second));
  sessions_.erase(found);
  shared_.pairs.fetch_sub(1);
  sweep_later();
}

void Splicer::Lane::dial(const Address& address, std::chrono::milliseconds timeout, OnDialed then) {
  if (shared_.stopped.load()) return then(Error(Code::kUnavailable, "stopping"));
  auto fd = internal::start_connect(address);
  if (!fd.ok()) return then(std::move(fd).error());
  auto dial =
      std::make_unique<Dial>(*this, system_clock().now() + timeout, address.str(), std::move(then));
  Dial& started = *dial;
  dials_.emplace(&started, std::move(dial));
  watch_clock();
  started.start(std::move(*fd));
}

void Splicer::Lane::end_dial(Dial& dial, Result<std::unique_ptr<Tunnel>> result) {
  const OnDialed then = dial.take();
  const auto found = dials_.find(&dial);
  dead_dials_.push_back(std::move(found->second));
  dials_.erase(found);
  sweep_later();
  then(std::move(result));
}

void Splicer::Lane::watch_clock() {
  if (std::exchange(ticking_, true)) return;
  const auto period = std::clamp<std::chrono::milliseconds>(shared_.options.idle_timeout / 8,
                                                            std::chrono::milliseconds(20),
                                                            std::chrono::milliseconds(500));
  reactor_->tick(period, [this] {
    look_at_clock();
    ticking_ = !sessions_.empty() || !dials_.empty();
    return ticking_;
  });
}

void Splicer::Lane::look_at_clock() {
  const SteadyTime now = system_clock().now();
  std::vector<std::pair<Session*, End>> late;
  for (auto& [id, session] : sessions_)
    if (const auto end = session->overdue(now)) late.emplace_back(session.get(), *end);
  for (auto& [session, end] : late) session->close(end);
  std::vector<Dial*> slow;
  for (auto& [dial, owned] : dials_)
    if (dial->deadline() <= now) slow.push_back(dial);
  for (Dial* dial : slow) dial->fail("no answer");
}

void Splicer::Lane::stop() {
  const MutexLock lock(mutex_);
  if (ended_) return;
  post_and_wait([this] {
    std::vector<Session*> all;
    for (auto& [id, session] : sessions_) all.push_back(session.get());
    for (Session* session : all) session->close(End::kClosed);
    std::vector<Dial*> dials;
    for (auto& [dial, owned] : dials_) dials.push_back(dial);
    for (Dial* dial : dials) dial->fail("stopping");
  });
  // Work that was posted before finds `stopped`. One more round lets it run.
  post_and_wait([] {});
  reactor_->stop();
  thread_.join();
  ended_ = true;
  dead_.clear();
  dead_dials_.clear();
}

namespace {

class TunnelListener final : public Splicer::Listener, private Reactor::Listener {
 public:
  using Run = std::function<void(const std::function<void()>&)>;
  TunnelListener(Reactor& reactor, Run run, std::string address, Fd listener,
                 Splicer::OnAccepted then)
      : reactor_(reactor),
        run_(std::move(run)),
        address_(std::move(address)),
        then_(std::move(then)) {
    run_([&] {
      watch_ = reactor_.watch(listener.release(), *this);
      watch_->want_read();
    });
  }
  ~TunnelListener() override {
    run_([this] { watch_.reset(); });
  }
  std::string address() const override { return address_; }

 private:
  void on_readable() override {
    for (int i = 0; i < 64; ++i) {
      Address peer;
      Fd fd = internal::accept_one(watch_->fd(), peer);
      if (!fd) {
        if (errno != EAGAIN && errno != EWOULDBLOCK) return wait_for_descriptors();
        break;
      }
      if (!peer.is_unix()) {
        internal::set_no_delay(fd.get());
        internal::set_keepalive(fd.get());
      }
      then_(internal::plain_tunnel(std::move(fd), peer.str()));
      if (!watch_) return;
    }
    watch_->want_read();
  }
  void on_writable() override {}
  void wait_for_descriptors() {
    log::warn("cannot accept connection, retrying",
              {{"address", address_}, {"error", std::strerror(errno)}});
    reactor_.tick(std::chrono::milliseconds(100), [this, alive = std::weak_ptr<int>(alive_)] {
      if (!alive.expired() && watch_) watch_->want_read();
      return false;
    });
  }

  Reactor& reactor_;
  const Run run_;
  const std::string address_;
  const Splicer::OnAccepted then_;
  std::unique_ptr<Reactor::Watch> watch_;
  std::shared_ptr<int> alive_ = std::make_shared<int>();  // a tick checks that this still exists
};

}  // namespace

Splicer::Splicer(Options options) : shared_(std::make_unique<Shared>()) {
  CHECK(options.threads > 0 && options.buffer_bytes_max > 0);
  shared_->options = options;
  for (std::size_t i = 0; i < options.threads; ++i)
    shared_->lanes.push_back(std::make_unique<Lane>(*shared_));
}
Splicer::~Splicer() { stop(); }

// The number of a pair is also that of its lane.
std::uint64_t Splicer::splice(Pair pair) {
  if (shared_->stopped.load()) return 0;
  if (shared_->pairs.fetch_add(1) >= shared_->options.pairs_max) {
    shared_->pairs.fetch_sub(1);
    return 0;
  }
  const std::uint64_t id = ++shared_->next;
  Lane& lane = *shared_->lanes[id % shared_->lanes.size()];
  const auto held = std::make_shared<Pair>(std::move(pair));
  lane.reactor().post([&lane, id, held] { lane.add(id, std::move(*held)); });
  return id;
}

void Splicer::close(std::uint64_t pair) {
  Lane& lane = *shared_->lanes[pair % shared_->lanes.size()];
  lane.reactor().post([&lane, pair] { lane.close(pair); });
}

std::size_t Splicer::pairs() const { return shared_->pairs.load(); }

Splicer::Lane& Splicer::next_lane() {
  return *shared_->lanes[++shared_->next % shared_->lanes.size()];
}

void Splicer::dial(const std::string& address, std::chrono::milliseconds timeout, OnDialed then) {
  auto parsed = Address::parse(address);
  if (!parsed.ok()) return then(std::move(parsed).error());
  if (shared_->stopped.load()) return then(Error(Code::kUnavailable, "stopping"));
  Lane& lane = next_lane();
  lane.reactor().post([&lane, parsed = *parsed, timeout, then = std::move(then)]() mutable {
    lane.dial(parsed, timeout, std::move(then));
  });
}

Result<std::unique_ptr<Splicer::Listener>> Splicer::listen(const std::string& address,
                                                           OnAccepted then) {
  TRY(Address parsed, Address::parse(address));
  TRY(Fd listener, internal::listen_on(parsed));
  if (!parsed.is_unix()) parsed = internal::local_address(listener.get());
  Lane& lane = next_lane();
  return std::unique_ptr<Listener>(std::make_unique<TunnelListener>(
      lane.reactor(), [&lane](const std::function<void()>& work) { lane.run(work); }, parsed.str(),
      std::move(listener), std::move(then)));
}

void Splicer::stop() {
  if (shared_->stopped.exchange(true)) return;
  for (auto& lane : shared_->lanes) lane->stop();
}

std::string_view to_string(Splicer::End end) {
  switch (end) {
    case Splicer::End::kFinished:
      return "finished";
    case Splicer::End::kBroken:
      return "broken";
    case Splicer::End::kIdle:
      return "idle";
    case Splicer::End::kExpired:
      return "expired";
    case Splicer::End::kClosed:
      return "closed";
  }
  return "";
}

}  // namespace varda::net
