// Peers: connects this node to its peers, with a port for the shared files and a client per peer.
//
// Both sides present their nodes' certificates and verify the peer's. A server is accepted only as
// the node that the client asked for, at whatever address.
#pragma once

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

/// Thread-safe.
class Peers {
 public:
  struct Options {
    std::string listen;  // "0.0.0.0:10445"; "": this node shares nothing
    std::string url;     // URL for other nodes; "": https:// and the bound address
    /// Called regularly, so that new connections use a renewed certificate. Nothing: this node has
    /// no identity.
    std::function<std::optional<identity::PeerCredentials>()> credentials;
  };
  explicit Peers(Options options);
  ~Peers();

  /// Starts listening, if configured. `handler` outlives the object. kUnavailable: the address is
  /// taken. kInvalid: no credentials, or a URL that peers would reject.
  Status serve(net::Handler handler);
  /// Reopens the port if the credentials were renewed.
  void refresh();
  /// Calls refresh() once a minute. `clock` outlives the task.
  runtime::Task task(const Clock& clock);
  /// URL of this node's shared files; "": not shared.
  std::string url() const;
  /// The client that authenticates `node` by its certificate; null: this node has no identity.
  /// Valid as long as the object. Uses TLS only: for any other URL the peer counts as unreachable.
  net::HttpClient* client_of(const std::string& node);

 private:
  class Client;
  Status open(const identity::PeerCredentials& credentials) REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  net::Handler handler_ GUARDED_BY(mutex_);
  std::optional<identity::PeerCredentials> in_use_ GUARDED_BY(mutex_);
  std::unique_ptr<net::Server> server_ GUARDED_BY(mutex_);
  std::string bound_ GUARDED_BY(mutex_);  // kept when the port is reopened
  std::map<std::string, std::unique_ptr<Client>> clients_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent::replicas
