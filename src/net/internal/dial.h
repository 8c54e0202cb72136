// Blocking waits of the client: for a socket, a name, a connection; each ends with its context.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "base/context.h"
#include "net/internal/socket.h"

namespace varda::net::internal {

/// Waits for one socket at a time and is woken by a stop request. One thread at a time; attach() and the wake are separate.
class Waiter {
 public:
  Waiter();
  /// From now on a stop of this token ends wait(). Replaces the one before.
  void attach(const std::stop_token& stop);
  void detach();

  enum class For { kRead, kWrite, kEither };
  /// Until the socket is ready (or broken). kTimeout, kCancelled: the context.
  Status wait(const Context& ctx, int fd, For what);

 private:
  struct Wake {
    int fd;
    void operator()() const;
  };
  Fd event_;
  std::stop_token stop_;  // of the callback
  std::optional<std::stop_callback<Wake>> callback_;
};

/// Every address of a host, the order the system gives. kUnavailable: no such name. A slow resolver does not outlast the context.
Result<std::vector<Address>> resolve(const Context& ctx, const std::string& host, int port);
/// The addresses of a host that is numeric in any form the system reads ("127.1", "0x7f000001"). Empty: `host` is a name.
std::vector<Address> numeric_addresses(const std::string& host, int port);
/// The first address that takes the connection.
Result<Fd> connect_any(const Context& ctx, Waiter& waiter, const std::vector<Address>& addresses);

}  // namespace varda::net::internal
