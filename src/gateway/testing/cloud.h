// Cloud: the real API server in memory with our kinds, behind a gateway that tests reach like
// nodes.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apiserver/testing/in_memory.h"
#include "codec/json.h"
#include "gateway/gateway.h"
#include "kube/client.h"
#include "net/http.h"

namespace varda::gateway::testing {

/// The peer of a connection with a good certificate of `node`.
net::Peer peer_of(const std::string& node);

class Cloud {
 public:
  Cloud();
  /// Ready when this returns. `options.client` is filled in.
  void start_gateway(Gateway::Options options = {});
  void stop_gateway() { gateway_.reset(); }
  Gateway& gateway() { return *gateway_; }

  apiserver::InMemoryApiServer& api() { return api_; }
  const kube::Client& client() { return client_; }
  /// A transport through the present gateway.
  std::unique_ptr<net::HttpClient> transport(const std::string& node);
  std::unique_ptr<net::HttpClient> transport(net::Peer peer);

  /// POSTs a YAML stream of objects, and patches the status of objects that have one.
  void apply(const std::string& yaml);
  codec::Json edge_node(const std::string& name) {
    return api_.get("/apis/edgeai.io/v1alpha1/edgenodes/" + name).body;
  }

 private:
  apiserver::InMemoryApiServer api_;
  kube::Client client_{api_.transport(), {.field_manager = "varda-gateway"}};
  std::unique_ptr<Gateway> gateway_;
};

}  // namespace varda::gateway::testing
