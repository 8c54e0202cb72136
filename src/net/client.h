// HTTP/1.1 client over TCP, TLS and Unix sockets: blocking, pooled.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/destinations.h"
#include "net/http.h"
#include "net/proxy.h"
#include "net/tls.h"
#include "net/tunnel.h"

namespace varda::net {

/// The addresses of a host.
struct HostAddresses {
  int error = 0;  // of getaddrinfo
  std::vector<std::string> numeric = {};
};
/// Looks up a host name. May block: each call runs on a separate thread, which may outlive the
/// client.
using LookUp = std::function<HostAddresses(const std::string& host)>;

struct ClientOptions {
  TlsClient tls;
  std::string extra_ca_pem;  // trusted besides tls.ca_pem or the system's roots
  Proxies proxies;           // not for Unix sockets
  std::string unix_socket;   // if set, every request goes there; the URL only names the Host
  std::chrono::milliseconds connect_timeout{10000};
  std::chrono::milliseconds idle_timeout{
      60000};                             // pooled connections older than this are not used again
  std::size_t idle_connections_max = 16;  // per origin
  int redirects_max = 0;                  // GET and HEAD only; https never redirects to http
  /// Checked at each hop with the address to connect to. A refused address ends as kForbidden,
  /// terminal. Absent: every address is allowed. A proxy itself is never refused. Proxies resolve
  /// names, so behind a proxy only numeric hosts are checked.
  std::optional<Destinations> destinations;
  /// If set, every connection comes from here, and the URLs (http only) just name the Host.
  /// Proxies, destinations and unix_socket do not apply. connect_timeout does.
  Connector connector;
  LookUp look_up;                      // absent: this process asks the system
  bool tcp_keepalive = true;           // finds dead peers of long watches within ~30 s
  std::chrono::seconds dead_after{0};  // closes a connection after this long without a TCP
                                       // acknowledgement; at least 2 s; 0: tcp_keepalive decides
};

/// If a pooled connection closes before the first response byte, the request is retried once on a
/// new connection. The retry requires an idempotent method (GET, HEAD, PUT, DELETE, OPTIONS) or
/// that no byte was written.
std::unique_ptr<HttpClient> make_client(ClientOptions options);

}  // namespace varda::net
