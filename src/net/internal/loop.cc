#include "net/internal/loop.h"

#include <algorithm>
#include <ctime>

namespace varda::net::internal {
namespace {

thread_local Loop* this_thread_loop = nullptr;

/// The period of timeout checks: a fraction of the shortest timeout. Timeouts are then a little
/// late, and checks are cheap.
std::chrono::milliseconds tick_period(const Server::Options& options) {
  const auto shortest = std::min(
      {options.header_timeout, options.idle_timeout, options.write_timeout, options.body_window});
  return std::clamp(shortest / 4, std::chrono::milliseconds(5), std::chrono::milliseconds(1000));
}

}  // namespace

Loop* Loop::of_this_thread() { return this_thread_loop; }

Loop::Loop(ServerState& state)
    : state_(state),
      reactor_(Reactor::create()),
      scratch_(64 << 10),
      tick_period_(tick_period(state.options)) {
  mailbox_ = std::make_shared<Mailbox>([this] { reactor_->post([this] { deliver(); }); });
}

Loop::~Loop() { stop(); }

void Loop::start() {
  thread_ = std::thread([this] {
    this_thread_loop = this;
    reactor_->run();
    // On this thread, like all other calls to connections.
    closing_ = true;
    close_all();
    dead_.clear();
    this_thread_loop = nullptr;
  });
}

void Loop::stop() {
  reactor_->stop();
  if (thread_.joinable()) thread_.join();
  mailbox_->close();
}

void Loop::adopt(Fd fd, std::string peer) {
  auto shared = std::make_shared<Fd>(std::move(fd));
  reactor_->post([this, shared, peer = std::move(peer)] {
    if (closing_ || state_.stopping.load()) {
      state_.addresses.remove(peer);
      state_.handshake_over();
      state_.connection_over();
      return;
    }
    const std::uint64_t id = next_id_++;
    auto connection = std::make_unique<Connection>(*this, id, shared->release(), peer);
    Connection& started = *connection;
    connections_.emplace(id, std::move(connection));
    if (!std::exchange(ticking_, true)) reactor_->tick(tick_period_, [this] { return on_tick(); });
    if (state_.options.tls) {
      const bool first = handshakes_.empty();
      handshakes_.emplace_back(system_clock().now() + state_.options.handshake_turn, id);
      if (first) {
        const auto period = std::clamp<std::chrono::milliseconds>(state_.options.handshake_turn / 8,
                                                                  std::chrono::milliseconds(5),
                                                                  std::chrono::milliseconds(250));
        reactor_->tick(period, [this] { return on_handshake_tick(); });
      }
    }
    started.start();
  });
}

void Loop::close_later(std::uint64_t id) {
  reactor_->post([this, id] {
    const auto found = connections_.find(id);
    if (found != connections_.end()) found->second->close();
  });
}

void Loop::refuse_body_later(std::uint64_t id) {
  reactor_->post([this, id] {
    const auto found = connections_.find(id);
    if (found != connections_.end()) found->second->refuse_body();
  });
}

void Loop::hand_over_later(std::uint64_t id) {
  reactor_->post([this, id] {
    const auto found = connections_.find(id);
    if (found != connections_.end()) found->second->hand_over();
  });
}

bool Loop::on_handshake_tick() {
  const SteadyTime now = system_clock().now();
  while (!handshakes_.empty() && handshakes_.front().first <= now) {
    const std::uint64_t id = handshakes_.front().second;
    handshakes_.pop_front();
    const auto found = connections_.find(id);
    if (found == connections_.end() || !found->second->shaking()) continue;
    found->second->yield_handshake(now - state_.options.handshake_turn);
    if (found->second->shaking()) handshakes_.emplace_back(now + state_.options.handshake_turn, id);
  }
  return !handshakes_.empty();
}

void Loop::close_idle() {
  std::vector<Connection*> all;
  for (auto& [id, connection] : connections_) all.push_back(connection.get());
  for (Connection* connection : all) connection->close_if_idle();
}

void Loop::close_all() {
  closing_ = true;
  std::vector<Connection*> all;
  for (auto& [id, connection] : connections_) all.push_back(connection.get());
  for (Connection* connection : all) connection->close();
}

std::optional<Loop::Waiting> Loop::longest_waiting() const {
  std::optional<Waiting> longest;
  for (const auto& [id, connection] : connections_) {
    const std::optional<SteadyTime> since = connection->waiting_since();
    if (since && (!longest || *since < longest->since))
      longest = Waiting{.since = *since, .id = id};
  }
  return longest;
}

bool Loop::close_waiting(const Waiting& waiting) {
  const auto found = connections_.find(waiting.id);
  if (found == connections_.end()) return true;
  if (found->second->waiting_since() != waiting.since) return false;
  found->second->close();
  return true;
}

void Loop::bury(std::uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  dead_.push_back(std::move(found->second));
  connections_.erase(found);
  if (dead_.size() == 1) reactor_->post([this] { dead_.clear(); });
  state_.connection_over();
}

const std::string& Loop::date() {
  const std::time_t now = std::time(nullptr);
  if (now != date_second_) {
    date_second_ = now;
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[64];
    date_.assign(text,
                 std::strftime(text, sizeof(text), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts));
  }
  return date_;
}

void Loop::deliver() {
  for (Mail& mail : mailbox_->take()) {
    const auto found = connections_.find(mail.connection);
    if (found == connections_.end()) continue;
    if (mail.response) {
      found->second->answer(mail.request, std::move(*mail.response));
    } else {
      found->second->wake(mail.request);
    }
  }
}

bool Loop::on_tick() {
  const SteadyTime now = system_clock().now();
  std::vector<Connection*> late;
  for (auto& [id, connection] : connections_) {
    if (connection->deadline() <= now) late.push_back(connection.get());
  }
  for (Connection* connection : late) connection->on_deadline();
  // Without connections there is nothing to check, and the thread sleeps.
  ticking_ = !connections_.empty();
  return ticking_;
}

}  // namespace varda::net::internal
