// Blocking waits of the client for a socket, a name or a connection. Each wait ends with its
// context.
#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "base/context.h"
#include "net/internal/lookups.h"
#include "net/internal/socket.h"

namespace varda::net::internal {

/// Waits for one socket at a time; a stop request wakes it. One thread at a time; attach() and the
/// wake are separate.
class Waiter {
 public:
  Waiter();
  /// From now on a stop of this token ends wait(). Replaces the previous token.
  void attach(const std::stop_token& stop);
  void detach();

  enum class For { kRead, kWrite, kEither };
  /// Waits until the socket is ready or broken. kTimeout, kCancelled: the context.
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

/// All addresses of a host, in the system's order. kUnavailable: no such name. Returns when the
/// context ends, even if the resolver is slow.
/// `lookups` replaces the system's lookup of names, if given.
Result<std::vector<Address>> resolve(const Context& ctx, const std::string& host, int port,
                                     Lookups* lookups = nullptr);
/// The addresses of a host that is numeric in any form the system reads ("127.1", "0x7f000001").
/// Empty: `host` is a name.
std::vector<Address> numeric_addresses(const std::string& host, int port);
/// Connects to the first address that accepts.
Result<Fd> connect_any(const Context& ctx, Waiter& waiter, const std::vector<Address>& addresses);

}  // namespace varda::net::internal
