#include "gateway/testing/cloud.h"

#include <chrono>

#include "api/kind.h"
#include "base/check.h"
#include "base/testing/eventually.h"
#include "codec/yaml.h"
#include "kube/discovery.h"

namespace varda::gateway::testing {

using codec::Json;

net::Peer peer_of(const std::string& node) {
  return {.address = "198.51.100.7:40000",
          .certificate_common_name = node,
          .certificate_organizations = {"system:nodes"},
          .certificate_not_after = std::chrono::system_clock::now() + std::chrono::hours(1)};
}

Cloud::Cloud() : api_({.crds = api::crds()}) {}

void Cloud::start_gateway(Gateway::Options options) {
  options.client = &client_;
  gateway_ = Gateway::create(std::move(options)).value();
  CHECK(eventually("the gateway is ready", [this] { return gateway_->ready(); }));
}

std::unique_ptr<net::HttpClient> Cloud::transport(const std::string& node) {
  return transport(peer_of(node));
}
std::unique_ptr<net::HttpClient> Cloud::transport(net::Peer peer) {
  return net::loopback(gateway_->handler(), std::move(peer));
}

void Cloud::apply(const std::string& yaml) {
  const auto objects = codec::parse_yaml_stream(yaml);
  CHECK(objects.ok());
  for (const Json& object : *objects) {
    const std::string& kind = object["kind"].as_string();
    const std::string& ns = object.at("metadata/namespace").as_string();
    std::string path = object["apiVersion"].as_string() == "v1"
                           ? "/api/v1"
                           : "/apis/" + object["apiVersion"].as_string();
    if (!ns.empty()) path += "/namespaces/" + ns;
    path += "/";
    for (const char c : kind) path += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    path += "s";
    const auto made = api_.post(path, object);
    CHECK(made.status == 201);
    if (object["status"].is_null()) continue;
    const auto reported =
        api_.merge_patch(path + "/" + object.at("metadata/name").as_string() + "/status",
                         Json::object({{"status", object["status"]}}));
    CHECK(reported.status == 200);
  }
}

}  // namespace varda::gateway::testing
