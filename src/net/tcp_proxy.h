// An L4 balancer: forwards each accepted connection to the next backend of a list.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace varda::net {

/// A thread that several proxies may share. Ends with its last proxy and holder.
class ProxyThread;
std::shared_ptr<ProxyThread> make_proxy_thread();

/// Listens from create() on, until finish() or stop(). Thread-safe. Connections are distributed
/// round robin. A backend that refuses or does not answer in time is skipped; each backend is tried
/// once. If no backend is left, the client's connection is closed.
class TcpProxy {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";  // numeric HOST:PORT; port 0: any free one
    // At the limit, a new connection replaces the one that has been silent longest. Bytes in either
    // direction end a silence.
    std::size_t connections_max = 1024;
    // Limit for one address (IPv6: the first 64 bits). Further connections are closed at once. 0:
    // half of connections_max.
    std::size_t connections_per_address_max = 0;
    std::chrono::milliseconds connect_timeout{2000};  // of one backend
    std::shared_ptr<ProxyThread> thread;              // absent: a private thread
  };
  /// Backends are numeric "HOST:PORT". kUnavailable: the address is in use or not on this machine.
  /// kInvalid: a bad address.
  static Result<std::unique_ptr<TcpProxy>> create(Options options,
                                                  std::vector<std::string> backends = {});
  virtual ~TcpProxy() = default;

  virtual std::string address() const = 0;
  virtual int port() const = 0;
  /// After the return, new connections use only these backends. Open connections stay until they
  /// end. kInvalid: a bad address; the list is unchanged.
  virtual Status set_backends(std::vector<std::string> backends) = 0;
  virtual std::vector<std::string> backends() const = 0;
  /// Stops listening permanently; the port is free on return. Open connections stay until they end.
  /// Idempotent.
  virtual void finish() = 0;
  /// The number of open connections.
  virtual std::size_t connections() const = 0;
  /// Stops listening and closes every connection. Idempotent.
  virtual void stop() = 0;
};

}  // namespace varda::net
