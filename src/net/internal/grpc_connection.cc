#include "net/internal/grpc_connection.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "net/internal/grpc_loop.h"

namespace varda::net::internal {
namespace {

constexpr std::size_t kWriteBytes = 128 << 10;     // bytes taken from a session at once
constexpr std::size_t kKeepOutputBytes = 4 << 10;  // limit for the buffer of a quiet connection
constexpr int kRoundsInARow = 8;                   // then other connections get a turn

}  // namespace

GrpcConnection::GrpcConnection(GrpcLoop& loop, std::uint64_t id, int fd, std::string peer)
    : loop_(loop),
      id_(id),
      watch_(loop.reactor().watch(fd, *this)),
      accepted_(system_clock().now()) {
  peer_.address = std::move(peer);
  const TlsContext tls = loop.state().tls();
  stream_ = tls ? tls_accept(fd, tls) : plain_stream(fd);
}

GrpcConnection::GrpcConnection(GrpcLoop& loop, std::uint64_t id, Tunnel::Parts& tunnel, Peer peer)
    : loop_(loop),
      id_(id),
      watch_(loop.reactor().watch(tunnel.fd.release(), *this)),
      stream_(std::move(tunnel.stream)),
      peer_(std::move(peer)),
      accepted_(system_clock().now()),
      unread_(std::move(tunnel.unread)) {}

GrpcConnection::~GrpcConnection() = default;

void GrpcConnection::start() {
  handshake_deadline_ = accepted_ + loop_.state().options.handshake_timeout;
  reschedule();
  handshake();
}

void GrpcConnection::handshake() {
  switch (stream_->handshake().kind) {
    case IoResult::Kind::kBytes:
      return begin();
    case IoResult::Kind::kWantRead:
      return watch_->want_read();
    case IoResult::Kind::kWantWrite:
      return watch_->want_write();
    case IoResult::Kind::kEnd:
    case IoResult::Kind::kError:
      return close(Error(Code::kUnavailable, stream_->error()));
  }
}

void GrpcConnection::begin() {
  handshake_deadline_ = SteadyTime::max();
  stream_->describe_certificate(peer_);
  session_ = GrpcSession::create({.options = loop_.state().options,
                                  .handler = loop_.state().handler,
                                  .peer = peer_,
                                  .budget = loop_.state().budget,
                                  .make_wake =
                                      [this](std::int32_t stream) {
                                        auto wake = std::make_shared<StreamWake>();
                                        wake->mailbox = loop_.mailbox();
                                        wake->connection = id_;
                                        wake->request = static_cast<std::uint64_t>(stream);
                                        return wake;
                                      }},
                                 accepted_);
  if (loop_.state().draining.load()) session_->drain(system_clock().now());
  if (!unread_.empty()) feed(std::exchange(unread_, {}));
  pump();
  if (!closed_) on_readable();
}

void GrpcConnection::feed(std::string_view bytes) {
  const Status fed = session_->feed(bytes, system_clock().now());
  if (fed.ok()) return;
  log::debug("closing gRPC connection", {{"peer", peer_.address}, {"error", fed.error()}});
  broken_ = true;
}

void GrpcConnection::on_readable() {
  if (closed_) return;
  if (!session_) return handshake();
  if (std::exchange(write_wants_read_, false)) {
    write_blocked_ = false;
    pump();
  }
  auto& scratch = loop_.scratch();
  for (int round = 0; round < kRoundsInARow; ++round) {
    if (closed_ || broken_) return;
    const IoResult read = stream_->read(scratch);
    switch (read.kind) {
      case IoResult::Kind::kWantRead:
        watch_->want_read();
        return;
      case IoResult::Kind::kWantWrite:
        read_wants_write_ = true;
        watch_->want_write();
        return;
      case IoResult::Kind::kEnd:
      case IoResult::Kind::kError:
        return close(Error(Code::kCancelled, "the client disconnected"));
      case IoResult::Kind::kBytes:
        break;
    }
    feed({scratch.data(), read.count});
    pump();
    if (closed_) return;
    if (read.count < scratch.size() && stream_->short_read_means_empty()) break;
  }
  watch_->want_read();
}

void GrpcConnection::on_writable() {
  if (closed_) return;
  if (!session_) return handshake();
  write_blocked_ = false;
  pump();
  if (!closed_ && std::exchange(read_wants_write_, false)) on_readable();
}

void GrpcConnection::pump() {
  if (closed_ || !session_) return;
  const SteadyTime now = system_clock().now();
  while (!write_blocked_) {
    if (out_.empty()) {
      if (!session_->output(out_, kWriteBytes, now).ok()) broken_ = true;
      if (out_.empty()) break;
    }
    if (!flush(now)) break;
  }
  if (closed_) return;
  if (out_.empty() && (broken_ || session_->over())) {
    stream_->finish();
    return close(Error(Code::kUnavailable, "the connection ended"));
  }
  reschedule();
}

bool GrpcConnection::flush(SteadyTime now) {
  while (out_sent_ < out_.size()) {
    const IoResult written = stream_->write(std::string_view(out_).substr(out_sent_), {});
    switch (written.kind) {
      case IoResult::Kind::kBytes:
        out_sent_ += written.count;
        write_deadline_ = now + loop_.state().options.write_timeout;
        continue;
      case IoResult::Kind::kWantRead:
        write_blocked_ = write_wants_read_ = true;
        watch_->want_read();
        break;
      case IoResult::Kind::kWantWrite:
        write_blocked_ = true;
        watch_->want_write();
        break;
      case IoResult::Kind::kEnd:
      case IoResult::Kind::kError:
        close(Error(Code::kCancelled, "the client disconnected"));
        return false;
    }
    if (write_deadline_ == SteadyTime::max())
      write_deadline_ = now + loop_.state().options.write_timeout;
    return false;
  }
  write_deadline_ = SteadyTime::max();
  out_.clear();
  out_sent_ = 0;
  if (out_.capacity() > kKeepOutputBytes) std::string().swap(out_);
  return true;
}

void GrpcConnection::reschedule() {
  if (closed_) return;
  SteadyTime next = std::min(write_deadline_, handshake_deadline_);
  if (session_) next = std::min(next, session_->deadline());
  // A later deadline keeps the timer: on_time() finds nothing late and reschedules.
  if (next >= scheduled_) return;
  loop_.schedule(id_, scheduled_, next);
  scheduled_ = next;
}

void GrpcConnection::on_time() {
  if (closed_) return;
  scheduled_ = SteadyTime::max();
  const SteadyTime now = system_clock().now();
  if (handshake_deadline_ <= now)
    return close(Error(Code::kTimeout, "the handshake took too long"));
  if (write_deadline_ <= now) return close(Error(Code::kUnavailable, "the client does not read"));
  if (!session_) return reschedule();
  if (const Status late = session_->on_time(now); !late.ok()) {
    log::debug("closing gRPC connection", {{"peer", peer_.address}, {"error", late.error()}});
    return close(Error(Code::kCancelled, late.error().message()));
  }
  pump();
}

void GrpcConnection::wake(std::int32_t stream) {
  if (closed_ || !session_) return;
  session_->wake(stream, system_clock().now());
  pump();
}

void GrpcConnection::drain() {
  if (!session_) return close(Error(Code::kUnavailable, "the server stops"));
  session_->drain(system_clock().now());
  pump();
}

void GrpcConnection::abort() {
  if (!session_) return close(Error(Code::kUnavailable, "the server stops"));
  session_->abort(Error(Code::kUnavailable, "the server stops"), system_clock().now());
  pump();
}

SteadyTime GrpcConnection::idle_since() const {
  if (!session_) return accepted_;
  return session_->calls() > 0 ? SteadyTime::max() : session_->idle_since();
}

void GrpcConnection::close(const Status& status) {
  if (std::exchange(closed_, true)) return;
  loop_.schedule(id_, scheduled_, SteadyTime::max());
  loop_.state().addresses.remove(peer_.address);
  watch_.reset();
  loop_.bury(id_);
  if (session_) session_->closed(status);
}

}  // namespace varda::net::internal
