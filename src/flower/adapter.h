// Adapter: gives the tasks of a Rounds to Flower clients.
//
//   flower::Adapter adapter({}, rounds);
//   TRY(const auto server, net::GrpcServer::create(
//       {.listen = "0.0.0.0:8080", .message_bytes_max = 512u << 20, …},
//       net::grpc_methods({{std::string(flower::kJoinMethod), adapter.handler()}})));
//   …
//   adapter.stop(…);           // sends clients away
//   server->stop(…);           // before the adapter is destroyed
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "flower/rounds.h"
#include "flower/session.h"
#include "net/grpc_server.h"

namespace varda::flower {

/// Without Options::name_of, clients are named "flower/HOST/N": N is the lowest number that no
/// connected client of the address has. A client that reconnects gets its former name if the other
/// clients of its address stay. Thread-safe.
class Adapter {
 public:
  struct Options {
    std::size_t threads = 2;  // each holds one answer at a time
    MessageLimits limits = {};
    /// The client's own name; an error refuses the client. A second call with the name of an open
    /// one ends the first, as after a cut that the server has not seen. Null: names by address.
    std::function<Result<std::string>(const net::Peer& peer)> name_of = nullptr;
  };
  /// `rounds` outlives the adapter.
  Adapter(Options options, Rounds& rounds);
  /// The server is stopped before.
  ~Adapter();
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  net::GrpcHandler handler();
  std::size_t clients() const;
  /// Asks clients to come back after `seconds` (0: to exit), and waits up to `grace` until they
  /// have left. A client in training leaves after its answer, which still counts. New clients are
  /// refused. Idempotent.
  void stop(std::chrono::seconds seconds, std::chrono::milliseconds grace);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varda::flower
