// The socket of one gRPC client: moves bytes between a Stream and a GrpcSession.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "net/internal/grpc_session.h"
#include "net/internal/reactor.h"
#include "net/internal/stream.h"
#include "net/internal/tunnel_parts.h"

namespace varda::net::internal {

class GrpcLoop;

/// Belongs to its loop's thread. close() takes it out of the loop; it is destroyed a little later.
class GrpcConnection final : public Reactor::Listener {
 public:
  GrpcConnection(GrpcLoop& loop, std::uint64_t id, int fd, std::string peer);
  /// Takes the socket out of a tunnel, with the bytes that have arrived.
  GrpcConnection(GrpcLoop& loop, std::uint64_t id, Tunnel::Parts& tunnel, Peer peer);
  ~GrpcConnection();
  GrpcConnection(const GrpcConnection&) = delete;
  GrpcConnection& operator=(const GrpcConnection&) = delete;

  std::uint64_t id() const { return id_; }
  void start();
  void wake(std::int32_t stream);
  void on_time();
  void drain();
  void abort();
  void close(const Status& status);
  /// No call is open since then; max(): a call is open.
  SteadyTime idle_since() const;

  void on_readable() override;
  void on_writable() override;

 private:
  void handshake();
  void begin();
  void feed(std::string_view bytes);
  /// Writes what the session has, then waits for the next deadline. Closes the connection if the
  /// session is over.
  void pump();
  bool flush(SteadyTime now);
  void reschedule();

  GrpcLoop& loop_;
  const std::uint64_t id_;
  std::unique_ptr<Reactor::Watch> watch_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<GrpcSession> session_;  // after the TLS handshake
  Peer peer_;
  const SteadyTime accepted_;
  bool closed_ = false;
  bool broken_ = false;  // closes after the remaining output
  bool write_blocked_ = false;
  bool write_wants_read_ = false;  // TLS: the write needs bytes from the peer first
  bool read_wants_write_ = false;
  SteadyTime write_deadline_ = SteadyTime::max();
  SteadyTime handshake_deadline_ = SteadyTime::max();
  SteadyTime scheduled_ = SteadyTime::max();
  std::string unread_;  // bytes from before start()
  std::string out_;
  std::size_t out_sent_ = 0;
};

}  // namespace varda::net::internal
