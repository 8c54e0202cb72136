// An API server with nothing on disk and no socket, and a client to it: what other rooms test against.
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

/// The real server over store::open_memory(). Thread-safe. Requests that fail at the transport end the test (CHECK). Clients and
/// the watches they opened end before this object does.
class InMemoryApiServer {
 public:
  struct Options {
    Server::Options server;  // `store` is filled in
    store::Options store;
    /// CustomResourceDefinitions that the server has from its start. The first server of a process installs them; every later
    /// server gets a copy of what the first one stored, which is much cheaper.
    std::vector<codec::Json> crds;
  };
  InMemoryApiServer();
  explicit InMemoryApiServer(Options options);
  ~InMemoryApiServer();

  Server& server() { return *server_; }
  store::Store& store() { return *store_; }
  /// A client that is in system:masters; its URLs are just targets ("/api/v1/pods"). Lives as long as this object.
  net::HttpClient& transport() { return *client_; }
  /// A client of one identity, checked by Options.server.authorizer.
  std::unique_ptr<net::HttpClient> transport_as(Identity identity);

  struct Reply {
    int status = 0;
    codec::Json body;  // null if it was no JSON
    std::string text;
  };
  Reply call(std::string method, std::string target, const codec::Json& body = nullptr,
             std::string content_type = "application/json");
  Reply get(std::string target) { return call("GET", std::move(target)); }
  Reply post(std::string target, const codec::Json& body) { return call("POST", std::move(target), body); }
  Reply put(std::string target, const codec::Json& body) { return call("PUT", std::move(target), body); }
  Reply merge_patch(std::string target, const codec::Json& body) {
    return call("PATCH", std::move(target), body, "application/merge-patch+json");
  }
  Reply remove(std::string target) { return call("DELETE", std::move(target)); }

  /// POSTs (or, where it exists, PUTs) every CustomResourceDefinition of a YAML stream; CHECKs that the server takes them.
  void install_crds(std::string_view yaml_stream);

  /// Waits (at most a minute) until garbage collection and the other controllers are idle; CHECKs that they become so.
  void settle();

 private:
  std::unique_ptr<store::Store> store_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<net::HttpClient> client_;
};

}  // namespace varda::apiserver
