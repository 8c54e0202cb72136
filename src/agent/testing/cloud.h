// A cloud in memory for agent tests: the real enrolment over the API server, and a link that can
// break.
#pragma once

#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "api/edgeai/edge_node.h"
#include "api/kind.h"
#include "apiserver/testing/in_memory.h"
#include "codec/yaml.h"
#include "gateway/authority.h"
#include "gateway/caller.h"
#include "gateway/enrolment.h"
#include "gateway/join_token.h"
#include "net/client.h"

namespace varda::agent::testing {

using namespace std::chrono_literals;
using codec::Json;

/// The gateway's apparent URL.
inline constexpr const char* kUrl = "https://cloud.example:10443";

/// Cloud with API server, authority, enrolment, and a link that can break.
class Cloud {
 public:
  explicit Cloud(const Clock& clock)
      : clock_(clock),
        enrolment_(client_, authority_,
                   {.upstream_timeout = 300s, .failures_in_a_row = 1000, .clock = &clock}) {}

  enum class Link {
    kUp,
    kDown,         // nothing gets through
    kLosesAnswer,  // requests arrive, answers get lost
    kUnavailable   // 503
  };
  void link(Link link) { link_ = link; }
  int requests() const { return requests_; }
  int connections() const { return connections_; }
  const gateway::Authority& authority() const { return authority_; }
  const kube::Client& client() const { return client_; }
  gateway::Enrolment& enrolment() { return enrolment_; }

  std::string token(const std::string& node, std::chrono::seconds ttl = 24h,
                    std::string ca_sha256 = "") {
    if (ca_sha256.empty()) ca_sha256 = authority_.ca_sha256();
    return gateway::create_join_token(ctx_, client_,
                                      {.node = node, .ttl = ttl, .ca_sha256 = std::move(ca_sha256)},
                                      clock_.wall(), system_rng())
        ->text();
  }
  void annotate(const std::string& node, Json revoked) {
    const Json annotations =
        Json::object({{"annotations", Json::object({{"edgeai.io/revoked", std::move(revoked)}})}});
    auto patched =
        client_.patch(ctx_, api::EdgeNode::resource(), {"", node}, kube::PatchType::kMerge,
                      Json::object({{"metadata", annotations}}));
    if (patched.ok()) return;
    Json object = Json::object(
        {{"apiVersion", "edgeai.io/v1alpha1"}, {"kind", "EdgeNode"}, {"metadata", annotations}});
    object["metadata"].set("name", node);
    CHECK(client_.create(ctx_, api::EdgeNode::resource(), object).ok());
  }

  /// Connects with these credentials, applying the checks of both TLS ends.
  std::unique_ptr<net::HttpClient> connect(const net::TlsClient& tls) {
    ++connections_;
    net::Peer peer{.address = "10.0.0.7:4000", .certificate_common_name = ""};
    if (!tls.certificate_pem.empty()) {
      const auto facts = net::certificate_facts(tls.certificate_pem).value();
      peer.certificate_common_name = facts.common_name;
      peer.certificate_organizations = facts.organizations;
      peer.certificate_organizational_units = facts.organizational_units;
      peer.certificate_not_after = facts.not_after;
      peer.certificate_expired = facts.not_after <= clock_.wall();
    }
    const bool trusts = tls.ca_pem == authority_.ca_pem() ||
                        (tls.ca_pem.empty() && tls.ca_sha256 == authority_.ca_sha256());
    return std::make_unique<Cable>(
        *this,
        net::loopback(net::inline_handler([this](const net::Request& r) { return serve(r); }),
                      peer),
        trusts && tls.verified_name == gateway::kGatewayName);
  }

 private:
  class Cable final : public net::HttpClient {
   public:
    Cable(Cloud& cloud, std::unique_ptr<net::HttpClient> through, bool trusted)
        : cloud_(cloud), through_(std::move(through)), trusted_(trusted) {}
    Result<net::ClientResponse> send(const Context& ctx, net::ClientRequest request) override {
      ++cloud_.requests_;
      if (cloud_.link_ == Link::kDown) return Error(Code::kUnavailable, "no route to host");
      if (!trusted_) return Error(Code::kUnavailable, "certificate verify failed");
      request.url.erase(0, std::string(kUrl).size());
      auto response = through_->send(ctx, std::move(request));
      if (cloud_.link_ == Link::kLosesAnswer)
        return Error(Code::kUnavailable, "the connection broke");
      return response;
    }

   private:
    Cloud& cloud_;
    const std::unique_ptr<net::HttpClient> through_;
    const bool trusted_;
  };

  /// Serves enrolment; any other request returns the caller's node name.
  net::Response serve(const net::Request& request) {
    net::Response response;
    if (link_ == Link::kUnavailable) {
      response.status = 503;
      response.headers.add("Retry-After", "7");
      return response;
    }
    if (auto answer = enrolment_.handle(ctx_, request)) return std::move(*answer);
    const auto node = gateway::node_of(request.peer, clock_.wall());
    if (!node.ok()) response.status = node.error().code() == Code::kUnauthenticated ? 401 : 403;
    response.body = node.ok() ? node->node : node.error().message();
    return response;
  }

  static apiserver::InMemoryApiServer::Options with_edge_nodes() {
    apiserver::InMemoryApiServer::Options options;
    for (const Json& crd : api::crds()) {
      if (crd.at("spec/names/kind").as_string() == "EdgeNode") options.crds.push_back(crd);
    }
    return options;
  }

  const Context ctx_ = Context::background();
  const Clock& clock_;
  apiserver::InMemoryApiServer api_{with_edge_nodes()};
  kube::Client client_{api_.transport(), {}};
  const gateway::Authority authority_ =
      *gateway::Authority::of(*net::make_ca("edge-ca", 24h * 3650));
  gateway::Enrolment enrolment_;
  std::atomic<Link> link_{Link::kUp};
  std::atomic<int> requests_{0}, connections_{0};
};

}  // namespace varda::agent::testing
