#include "net/internal/grpc_loop.h"

#include <algorithm>

#include "net/internal/grpc_connection.h"

namespace varda::net::internal {
namespace {

// Deadlines close together wake the thread once.
constexpr std::chrono::milliseconds kTimerGrain{20};

}  // namespace

GrpcLoop::GrpcLoop(GrpcState& state)
    : state_(state), reactor_(Reactor::create()), scratch_(64 << 10) {
  mailbox_ = std::make_shared<Mailbox>([this] { reactor_->post([this] { deliver(); }); });
}

GrpcLoop::~GrpcLoop() { stop(); }

void GrpcLoop::start() {
  thread_ = std::thread([this] {
    reactor_->run();
    closing_ = true;
    each([](GrpcConnection& connection) {
      connection.close(Error(Code::kUnavailable, "the server stops"));
    });
    dead_.clear();
  });
}

void GrpcLoop::stop() {
  reactor_->stop();
  if (thread_.joinable()) thread_.join();
  mailbox_->close();
}

void GrpcLoop::adopt(Fd fd, std::string peer) {
  auto shared = std::make_shared<Fd>(std::move(fd));
  reactor_->post([this, shared, peer = std::move(peer)] {
    if (begin(peer))
      start(std::make_unique<GrpcConnection>(*this, next_id_++, shared->release(), peer));
  });
}

void GrpcLoop::adopt(std::unique_ptr<Tunnel> tunnel, Peer peer) {
  auto shared = std::make_shared<std::unique_ptr<Tunnel>>(std::move(tunnel));
  reactor_->post([this, shared, peer = std::move(peer)] {
    if (begin(peer.address))
      start(std::make_unique<GrpcConnection>(*this, next_id_++, (*shared)->parts(), peer));
  });
}

bool GrpcLoop::begin(const std::string& peer) {
  if (!closing_ && !state_.stopping.load()) return true;
  state_.addresses.remove(peer);
  state_.connections.fetch_sub(1);
  state_.on_closed();
  return false;
}

void GrpcLoop::start(std::unique_ptr<GrpcConnection> connection) {
  GrpcConnection& started = *connection;
  connections_.emplace(started.id(), std::move(connection));
  started.start();
}

template <typename Work>
void GrpcLoop::each(const Work& work) {
  std::vector<GrpcConnection*> all;
  for (const auto& [id, connection] : connections_) all.push_back(connection.get());
  for (GrpcConnection* connection : all) work(*connection);
}

void GrpcLoop::drain() {
  each([](GrpcConnection& connection) { connection.drain(); });
}

void GrpcLoop::abort() {
  each([](GrpcConnection& connection) { connection.abort(); });
}

void GrpcLoop::close_idle(SteadyTime since) {
  each([&](GrpcConnection& connection) {
    if (connection.idle_since() <= since)
      connection.close(Error(Code::kUnavailable, "other clients wait"));
  });
}

void GrpcLoop::schedule(std::uint64_t id, SteadyTime from, SteadyTime to) {
  if (from == to) return;
  if (from != SteadyTime::max()) deadlines_.erase({from, id});
  if (to == SteadyTime::max()) return;
  deadlines_.emplace(to, id);
  arm();
}

void GrpcLoop::arm() {
  if (closing_ || deadlines_.empty()) return;
  const SteadyTime next = deadlines_.begin()->first;
  if (next >= armed_) return;
  armed_ = next;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - system_clock().now());
  reactor_->tick(std::max(wait, kTimerGrain), [this, armed = next] {
    if (armed_ == armed) on_timer();
    return false;  // an earlier deadline has its own timer
  });
}

void GrpcLoop::on_timer() {
  armed_ = SteadyTime::max();
  const SteadyTime now = system_clock().now();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const std::uint64_t id = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    const auto found = connections_.find(id);
    if (found != connections_.end()) found->second->on_time();
  }
  arm();
}

void GrpcLoop::deliver() {
  for (const Mail& mail : mailbox_->take()) {
    const auto found = connections_.find(mail.connection);
    if (found != connections_.end()) found->second->wake(static_cast<std::int32_t>(mail.request));
  }
}

void GrpcLoop::bury(std::uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  dead_.push_back(std::move(found->second));
  connections_.erase(found);
  if (dead_.size() == 1) reactor_->post([this] { dead_.clear(); });
  state_.connections.fetch_sub(1);
  state_.on_closed();
}

}  // namespace varda::net::internal
