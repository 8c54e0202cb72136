// Peers: this node's way to the nodes beside it: a port where it gives what it shares, and a client for each of them.
//
// Both sides show the certificates of their nodes and verify the other's: a server is believed to be the node it is asked as, and
// nothing else, whatever address it is reached at.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "net/http.h"
#include "net/server.h"

namespace varda::agent {

struct PeerCredentials {
  std::string certificate_pem, key_pem, ca_pem;
  WallTime issued;  // it is surely later than that
  friend bool operator==(const PeerCredentials&, const PeerCredentials&) = default;
};

/// Limits of the port for other nodes; address and TLS are left to be set. Anybody on the network reaches the port.
net::Server::Options peer_server_options();

/// Thread-safe.
class Peers {
 public:
  struct Options {
    std::string listen;  // "0.0.0.0:10445"; "": nothing is shared from here
    std::string url;     // where others reach that; "": https:// and what was bound
    /// Asked now and then: a certificate that was renewed is used from the next connection on. Nothing: this node has no identity.
    std::function<std::optional<PeerCredentials>()> credentials;
  };
  explicit Peers(Options options);
  ~Peers();

  /// Listens, if it is to. `handler` outlives the object. kUnavailable: the address is taken. kInvalid: there are no credentials,
  /// or the URL is none that others take.
  Status serve(net::Handler handler);
  /// Takes up renewed credentials: the port is opened anew. For a thread that looks once a minute or so.
  void refresh();
  /// Where others reach this node's shares; "": they do not.
  std::string url() const;
  /// The client that knows that node by its certificate; null: this node has no identity. Valid as long as the object.
  /// It asks over TLS only: any other URL counts as a node that is away.
  net::HttpClient* client_of(const std::string& node);

 private:
  class Client;
  Status open(const PeerCredentials& credentials) REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  net::Handler handler_ GUARDED_BY(mutex_);
  std::optional<PeerCredentials> in_use_ GUARDED_BY(mutex_);
  std::unique_ptr<net::Server> server_ GUARDED_BY(mutex_);
  std::string bound_ GUARDED_BY(mutex_);  // the port stays the same when it is opened anew
  std::map<std::string, std::unique_ptr<Client>> clients_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent
