// An L4 balancer: forwards each connection it takes to the next of a list of backends.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace varda::net {

/// A thread several proxies may share. Ends when the last of them and the last holder are gone.
class ProxyThread;
std::shared_ptr<ProxyThread> make_proxy_thread();

/// Listens from create() on, until finish() or stop(). Thread-safe. Connections go round robin; a backend that refuses or does not
/// answer in time is passed over for the next one, each tried once; with none left (or no backend at all) the client's connection
/// is closed.
class TcpProxy {
 public:
  struct Options {
    std::string listen = "127.0.0.1:0";               // numeric HOST:PORT; port 0: any free one
    std::size_t connections_max = 1024;               // further ones wait in the kernel's backlog
    std::chrono::milliseconds connect_timeout{2000};  // of one backend
    std::shared_ptr<ProxyThread> thread;              // absent: one of its own
  };
  /// Backends are numeric "HOST:PORT". kUnavailable: the address is in use or not ours. kInvalid: a bad address.
  static Result<std::unique_ptr<TcpProxy>> create(Options options, std::vector<std::string> backends = {});
  virtual ~TcpProxy() = default;

  virtual std::string address() const = 0;
  virtual int port() const = 0;
  /// From its return on new connections go to these only; connections there are stay until they end. kInvalid: a bad address,
  /// and the list stays as it was.
  virtual Status set_backends(std::vector<std::string> backends) = 0;
  virtual std::vector<std::string> backends() const = 0;
  /// Stops listening, for good; the port is free when this returns. Connections there are stay until they end. Idempotent.
  virtual void finish() = 0;
  /// Open right now.
  virtual std::size_t connections() const = 0;
  /// Stops listening and closes every connection. Idempotent.
  virtual void stop() = 0;
};

}  // namespace varda::net
