// Peers: connects this node to its peers, with a port for the shared files and a client per peer.
//
// Both sides present their nodes' certificates and verify the peer's. A server is accepted only as
// the node that the client asked for, at whatever address.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "agent/identity/peer_credentials.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "net/http.h"
#include "net/server.h"
#include "runtime/task.h"

namespace varda::agent::replicas {

/// Limits of the port for other nodes, without address and TLS. Every host on the network can reach
/// the port.
net::Server::Options peer_server_options();

inline constexpr std::uint16_t kPeerPort = 10445;

/// Thread-safe.
class Peers {
 public:
  /// Whether the port is a default, without which the node works on.
  enum class Port {
    kRequired,
    kOptional,  // if the port is taken, any free one is used; an error is retried later
  };
  struct Options {
    std::string listen;  // "0.0.0.0:10445"; "": this node shares nothing
    Port port = Port::kRequired;
    std::string url;  // URL for other nodes; "": https:// and the bound address
    /// Called regularly, so that new connections use a renewed certificate. Nothing: this node has
    /// no identity.
    std::function<std::optional<identity::PeerCredentials>()> credentials;
  };
  explicit Peers(Options options);
  ~Peers();

  /// Starts listening, if configured. `handler` outlives the object. kInvalid: a URL that peers
  /// would reject. Of a required port also kUnavailable: the address is taken; kInvalid: no
  /// credentials.
  Status serve(net::Handler handler);
  /// Reopens the port if the credentials were renewed. Opens an optional port that failed to open.
  void refresh();
  /// Calls refresh() once a minute, and `url_changed` if url() differs afterwards. `clock` outlives
  /// the task.
  runtime::Task task(const Clock& clock, std::function<void()> url_changed);
  /// URL of this node's shared files; "": not shared.
  std::string url() const;
  /// The client that authenticates `node` by its certificate; null: this node has no identity.
  /// Valid as long as the object. Uses TLS only: for any other URL the peer counts as unreachable.
  net::HttpClient* client_of(const std::string& node);

 private:
  class Client;
  Status open(const identity::PeerCredentials& credentials) REQUIRES(mutex_);
  Status listen(const identity::PeerCredentials& credentials, const std::string& address)
      REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  net::Handler handler_ GUARDED_BY(mutex_);
  std::optional<identity::PeerCredentials> in_use_ GUARDED_BY(mutex_);
  std::unique_ptr<net::Server> server_ GUARDED_BY(mutex_);
  std::string bound_ GUARDED_BY(mutex_);  // kept when the port is reopened
  std::map<std::string, std::unique_ptr<Client>> clients_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent::replicas
