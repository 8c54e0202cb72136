// The socket below a Tunnel.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "net/internal/dial.h"
#include "net/internal/socket.h"
#include "net/internal/stream.h"
#include "net/tunnel.h"

namespace varda::net {

struct Tunnel::Parts {
  internal::Fd fd;
  std::unique_ptr<internal::Stream> stream;  // works on fd: destroyed before it
  std::string unread = {};                   // bytes of the peer from before the tunnel
  std::string peer = {};
  std::optional<internal::Waiter> waiter = {};  // for blocking calls
};

namespace internal {

/// A tunnel over a connected socket without TLS.
std::unique_ptr<Tunnel> plain_tunnel(Fd fd, std::string peer);

}  // namespace internal
}  // namespace varda::net
