// An in-memory API server without sockets, and a client for it. For tests in other rooms.
//
//   InMemoryApiServer api({.crds = api::crds()});
//   auto created = api.post("/api/v1/namespaces/default/pods", pod);
//   kube::Client client(api.transport(), ...);
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apiserver/server.h"
#include "codec/json.h"
#include "net/http.h"
#include "store/store.h"

namespace varda::apiserver {

/// The real server over store::open_memory(). Thread-safe. A transport failure ends the test
/// (CHECK). Clients and the watches they opened must end before this object.
class InMemoryApiServer {
 public:
  struct Options {
    Server::Options server;  // `store` is set by the constructor
    store::Options store;
    /// CRDs installed from the start. The first server of a process installs them. Later servers
    /// copy the stored result, which is much cheaper.
    std::vector<codec::Json> crds;
  };
  InMemoryApiServer();
  explicit InMemoryApiServer(Options options);
  ~InMemoryApiServer();

  Server& server() { return *server_; }
  store::Store& store() { return *store_; }
  /// A client in system:masters; its URLs are targets only ("/api/v1/pods"). Lives as long as this
  /// object.
  net::HttpClient& transport() { return *client_; }
  /// A client of one identity, subject to Options.server.authorizer.
  std::unique_ptr<net::HttpClient> transport_as(Identity identity);

  struct Reply {
    int status = 0;
    codec::Json body;  // null if the body is not JSON
    std::string text;
  };
  Reply call(std::string method, std::string target, const codec::Json& body = nullptr,
             std::string content_type = "application/json");
  Reply get(std::string target) { return call("GET", std::move(target)); }
  Reply post(std::string target, const codec::Json& body) {
    return call("POST", std::move(target), body);
  }
  Reply put(std::string target, const codec::Json& body) {
    return call("PUT", std::move(target), body);
  }
  Reply merge_patch(std::string target, const codec::Json& body) {
    return call("PATCH", std::move(target), body, "application/merge-patch+json");
  }
  Reply remove(std::string target) { return call("DELETE", std::move(target)); }

  /// POSTs every CustomResourceDefinition of a YAML stream, or PUTs an existing one; CHECKs
  /// success.
  void install_crds(std::string_view yaml_stream);

  /// Waits until garbage collection and the other controllers are idle; CHECKs that this takes at
  /// most a minute.
  void settle();

 private:
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<net::HttpClient> client_;
};

}  // namespace varda::apiserver
