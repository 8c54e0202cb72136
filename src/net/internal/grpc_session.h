// One server connection of gRPC over HTTP/2, without I/O and without a clock: bytes in, bytes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "net/grpc_server.h"
#include "net/internal/mailbox.h"
#include "net/internal/receive_budget.h"

namespace varda::net::internal {

/// One thread at a time.
class GrpcSession {
 public:
  struct Setup {
    const GrpcServer::Options& options;  // outlives the session
    const GrpcHandler& handler;          // outlives the session
    Peer peer;
    std::shared_ptr<ReceiveBudget> budget;
    /// A wake calls wake() with this stream later, on the session's thread.
    std::function<std::shared_ptr<StreamWake>(std::int32_t stream)> make_wake;
  };
  static std::unique_ptr<GrpcSession> create(Setup setup, SteadyTime now);
  virtual ~GrpcSession() = default;

  /// Takes bytes from the peer. An error: the connection is unusable after the remaining output.
  virtual Status feed(std::string_view bytes, SteadyTime now) = 0;
  /// Appends bytes for the peer until `out` has `bytes_max` or none are left. An error: the
  /// connection is unusable.
  virtual Status output(std::string& out, std::size_t bytes_max, SteadyTime now) = 0;
  /// A call of this stream has been asked for something.
  virtual void wake(std::int32_t stream, SteadyTime now) = 0;
  /// Something may be late at this time; max(): nothing.
  virtual SteadyTime deadline() const = 0;
  /// An error: the connection is to be closed.
  virtual Status on_time(SteadyTime now) = 0;
  /// No new calls. The connection is over after the open ones.
  virtual void drain(SteadyTime now) = 0;
  /// Ends all calls; clients get the status.
  virtual void abort(const Status& status, SteadyTime now) = 0;
  /// The connection is closed: ends all calls.
  virtual void closed(const Status& status) = 0;

  virtual std::size_t calls() const = 0;
  /// The time since when there are no calls.
  virtual SteadyTime idle_since() const = 0;
  /// Nothing follows; close the connection.
  virtual bool over() const = 0;
};

}  // namespace varda::net::internal
