#include "gateway/join_secret.h"

#include <atomic>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <sstream>
#include <thread>

#include "api/edgeai/edge_node.h"
#include "api/kind.h"
#include "apiserver/testing/in_memory.h"
#include "base/testing/eventually.h"
#include "codec/digest.h"
#include "codec/yaml.h"
#include "gateway/authority.h"
#include "gateway/enrolment.h"
#include "gateway/node_key.h"
#include "net/certificates.h"

namespace varda::gateway {
namespace join_secret_test {

using namespace std::chrono_literals;
using codec::Json;

const meta::ObjectKey kSecret{"varda-edge", "varda-agent-join"};

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(VARDA_TESTDATA) + "/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// A cluster with the agents' namespace, and a gateway that keeps their shared token.
class Cluster {
 public:
  static apiserver::InMemoryApiServer::Options with_edge_nodes() {
    apiserver::InMemoryApiServer::Options options;
    for (const Json& crd : api::crds()) {
      if (crd.at("spec/names/kind").as_string() == "EdgeNode") options.crds.push_back(crd);
    }
    return options;
  }
  Cluster() {
    EXPECT_TRUE(make_system_namespace(ctx_, client_).ok());
    create({"", "v1", "Namespace", "namespaces", false},
           Json::object({{"metadata", Json::object({{"name", kSecret.ns}})}}));
  }
  void create(const meta::Resource& resource, Json object) {
    object.set("apiVersion", resource.api_version());
    object.set("kind", resource.kind);
    const auto made = client_.create(ctx_, resource, object);
    ASSERT_TRUE(made.ok()) << made.error();
  }
  void add_node(const std::string& name) {
    create({"", "v1", "Node", "nodes", false},
           Json::object({{"metadata", Json::object({{"name", name}})}}));
  }
  void add_edge_node(const std::string& name) {
    create(api::EdgeNode::resource(),
           Json::object({{"metadata", Json::object({{"name", name}})}, {"spec", Json::object()}}));
  }
  /// The uid of a DaemonSet that exists: the garbage collector deletes Pods of missing owners.
  std::string uid_of_daemon_set(const std::string& ns) {
    const meta::Resource daemon_sets{"apps", "v1", "DaemonSet", "daemonsets", true};
    const meta::ObjectKey key{ns, "varda-agent"};
    if (!client_.find(ctx_, daemon_sets, key).value()) {
      const Json labels = Json::object({{"app", "agent"}});
      const Json container = Json::object({{"name", "agent"}, {"image", "varda"}});
      create(
          daemon_sets,
          Json::object(
              {{"metadata", Json::object({{"name", key.name}, {"namespace", ns}})},
               {"spec",
                Json::object(
                    {{"selector", Json::object({{"matchLabels", labels}})},
                     {"template",
                      Json::object({{"metadata", Json::object({{"labels", labels}})},
                                    {"spec", Json::object({{"containers",
                                                            Json::array({container})}})}})}})}}));
    }
    return client_.get(ctx_, daemon_sets, key)->at("metadata")["uid"].as_string();
  }
  /// {node, and differences from a running agent of a DaemonSet: namespace, label, owner, phase,
  /// deleting}
  void add_pod(const Json& differences) {
    const meta::Resource pods{"", "v1", "Pod", "pods", true};
    const std::string ns = differences["namespace"].string_or(kSecret.ns),
                      owner = differences["owner"].string_or("DaemonSet");
    Json metadata =
        Json::object({{"name", "agent-" + differences["node"].as_string()},
                      {"namespace", ns},
                      {"labels", Json::object({{"app.kubernetes.io/name", "varda"},
                                               {"app.kubernetes.io/component",
                                                differences["label"].string_or("agent")}})}});
    if (!owner.empty()) {
      Json reference = Json::object({{"apiVersion", "apps/v1"},
                                     {"kind", owner},
                                     {"name", "varda-agent"},
                                     {"uid", owner == "DaemonSet" ? uid_of_daemon_set(ns) : "u-1"},
                                     {"controller", true}});
      metadata.set("ownerReferences", Json::array({std::move(reference)}));
    }
    if (differences["deleting"].as_bool())
      metadata.set("finalizers", Json::array({"example.com/keeps-it"}));
    const Json container = Json::object({{"name", "agent"}, {"image", "varda"}});
    const meta::ObjectKey key{ns, metadata["name"].as_string()};
    create(pods,
           Json::object({{"metadata", std::move(metadata)},
                         {"spec", Json::object({{"nodeName", differences["node"].as_string()},
                                                {"containers", Json::array({container})}})}}));
    const Json status = Json::object(
        {{"status", Json::object({{"phase", differences["phase"].string_or("Running")}})}});
    const auto reported = client_.patch(ctx_, pods, key, kube::PatchType::kMerge, status, "status");
    ASSERT_TRUE(reported.ok()) << reported.error();
    if (!differences["deleting"].as_bool()) return;
    ASSERT_TRUE(client_.remove(ctx_, pods, key).ok());
    ASSERT_TRUE(client_.get(ctx_, pods, key)->at("metadata").contains("deletionTimestamp"));
  }
  Result<TokenChange> ensure() {
    return ensure_shared_join_token(ctx_, client_, kSecret, authority_.ca_sha256(), *rng_);
  }
  /// The token as an agent reads it in its volume.
  std::string token() {
    const auto secret = client_.get(ctx_, secrets(), kSecret);
    return secret.ok() ? codec::unbase64(secret->at("data/token").as_string()).value()
                       : std::string();
  }
  std::string own_token(const std::string& node) {
    return create_join_token(ctx_, client_, {.node = node, .ca_sha256 = authority_.ca_sha256()},
                             system_clock().wall(), *rng_)
        ->text();
  }
  Enrolment::Options options() {
    return {.upstream_timeout = 300s, .join_secret = kSecret, .metrics = &registry_};
  }

  const Context ctx_ = Context().with_timeout(300s);
  apiserver::InMemoryApiServer api_{with_edge_nodes()};
  kube::Client client_{api_.transport(), {}};
  const Authority authority_ = *Authority::of(*net::make_ca("edge-ca", 24h * 3650));
  std::unique_ptr<Rng> rng_ = seeded_rng(11);
  metrics::Registry registry_;
};

net::Response send(Enrolment& enrolment, std::string path, const Json& body, net::Peer peer) {
  net::Request request;
  request.method = "POST";
  request.target = std::move(path);
  request.body = codec::write_json(body);
  request.peer = std::move(peer);
  return enrolment.handle(Context().with_timeout(300s), request).value();
}

TEST(SharedJoinToken, EnrolmentsMatchTheAgentCases) {
  std::map<std::string, std::string> keys;
  const auto csr = [&](const std::string& key) {
    if (keys[key].empty()) keys[key] = net::make_key().value();
    return net::make_csr(keys[key], "whoever").value();
  };
  const Json cases = codec::parse_yaml(read_file("agents.yaml")).value();
  for (const Json& one : cases.as_array()) {
    SCOPED_TRACE(one["name"].as_string());
    Cluster cluster;
    for (const Json& node : one["nodes"].as_array()) cluster.add_node(node.as_string());
    for (const Json& pod : one["pods"].as_array()) cluster.add_pod(pod);
    ASSERT_EQ(cluster.ensure().value(), TokenChange::kCreated);
    Enrolment enrolment(cluster.client_, cluster.authority_, cluster.options());
    std::string token = cluster.token();
    for (const Json& step : one["steps"].as_array()) {
      SCOPED_TRACE(codec::write_json(step));
      if (step.contains("forget")) {
        ASSERT_TRUE(
            forget_node_key(cluster.ctx_, cluster.client_, step["forget"].as_string()).ok());
      } else if (step.contains("appears")) {
        cluster.add_edge_node(step["appears"].as_string());
      } else if (step.contains("earlier_build")) {
        cluster.add_edge_node(step["earlier_build"].as_string());
      } else if (step.contains("rotate")) {
        ASSERT_TRUE(rotate_shared_join_token(cluster.ctx_, cluster.client_, kSecret,
                                             cluster.authority_.ca_sha256(), *cluster.rng_)
                        .ok());
      } else if (step.contains("revoke")) {
        ASSERT_TRUE(revoke_shared_join_token(cluster.ctx_, cluster.client_, kSecret).ok());
      } else if (step.contains("delete")) {
        ASSERT_TRUE(cluster.client_.remove(cluster.ctx_, secrets(), kSecret).ok());
      } else if (step.contains("keep")) {
        ASSERT_TRUE(cluster.ensure().ok());
      } else if (step.contains("reread")) {
        token = cluster.token();
      } else if (step.contains("overwrite")) {
        const Json patch = Json::object(
            {{"data", Json::object({{"token", codec::base64(step["overwrite"].as_string())}})}});
        ASSERT_TRUE(
            cluster.client_.patch(cluster.ctx_, secrets(), kSecret, kube::PatchType::kMerge, patch)
                .ok());
      } else if (step.contains("revoke_node")) {
        Json metadata =
            Json::object({{"name", step["revoke_node"].as_string()},
                          {"annotations", Json::object({{"edgeai.io/revoked", "true"}})}});
        cluster.create(api::EdgeNode::resource(),
                       Json::object({{"metadata", std::move(metadata)}, {"spec", Json::object()}}));
      } else {
        const bool renews = step.contains("renew");
        const std::string request = renews ? "renew" : "enroll";
        const Json& node = renews ? step["renew"] : step["enrol"];
        metrics::Counter& counter = cluster.registry_.counter(
            "varda_gateway_enrolments_total", "Certificate requests by request and outcome.",
            {{"request", request}, {"outcome", step["outcome"].as_string()}});
        const auto before = counter.value();
        net::Response response;
        if (renews) {
          response = send(enrolment, "/gateway/v1/renew",
                          Json::object({{"csr", csr(step["key"].as_string())}}),
                          {.address = "10.0.0.7:4000",
                           .certificate_common_name = node.as_string(),
                           .certificate_organizations = {"system:nodes"},
                           .certificate_not_after = std::chrono::system_clock::now() + 1h});
        } else {
          const std::string& which = step["token"].as_string();
          std::string text = which == "own" ? cluster.own_token(node.as_string()) : token;
          if (which == "wrong") text[30] = text[30] == '0' ? '1' : '0';
          Json body = Json::object({{"token", text}, {"csr", csr(step["key"].as_string())}});
          if (!node.is_null()) body.set("node", node);
          response = send(enrolment, "/gateway/v1/enroll", body, {.address = "10.0.0.7:4000"});
        }
        EXPECT_EQ(counter.value(), before + 1) << response.body;
        const Json answer = codec::parse_json(response.body).value();
        const std::string& message = answer["message"].as_string();
        EXPECT_NE(message.find(step["says"].string_or("")), std::string::npos) << message;
        if (step["outcome"].as_string() != "ok") {
          EXPECT_EQ(response.status, step["outcome"].as_string() == "invalid" ? 400 : 403);
          continue;
        }
        ASSERT_EQ(response.status, 200) << response.body;
        const auto facts = net::certificate_facts(answer["certificate"].as_string());
        EXPECT_EQ(facts->common_name, node.as_string());
        EXPECT_EQ(facts->key_sha256, *net::key_sha256(keys[step["key"].as_string()]));
      }
    }
  }
}

TEST(SharedJoinToken, ConcurrentKeysAtTwoGatewaysAdmitOne) {
  Cluster cluster;
  cluster.add_node("line7");
  cluster.add_pod(Json::object({{"node", "line7"}}));
  ASSERT_TRUE(cluster.ensure().ok());
  const std::string token = cluster.token();
  Enrolment::Options options = cluster.options();
  options.failures_in_a_row = 100;
  Enrolment one(cluster.client_, cluster.authority_, options),
      other(cluster.client_, cluster.authority_, options);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::string> csrs;
    for (int i = 0; i < 8; ++i) csrs.push_back(*net::make_csr(*net::make_key(), "line7"));
    std::vector<int> status(csrs.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < csrs.size(); ++i) {
        threads.emplace_back([&, i] {
          const Json body = Json::object({{"token", token}, {"csr", csrs[i]}, {"node", "line7"}});
          status[i] =
              send(i % 2 == 0 ? one : other, "/gateway/v1/enroll", body, {.address = "10.0.0.7:1"})
                  .status;
        });
      }
    }
    EXPECT_EQ(std::count(status.begin(), status.end(), 200), 1);
    EXPECT_EQ(std::count(status.begin(), status.end(), 403), 7);
    ASSERT_TRUE(forget_node_key(cluster.ctx_, cluster.client_, "line7").ok());
  }
}

TEST(SharedJoinToken, RefusedNodeDoesNotThrottleOthersAtItsAddress) {
  Cluster cluster;
  for (const std::string node : {"line7", "line8"}) {
    cluster.add_node(node);
    cluster.add_pod(Json::object({{"node", node}}));
  }
  ASSERT_TRUE(cluster.ensure().ok());
  Enrolment enrolment(cluster.client_, cluster.authority_, cluster.options());
  const auto enrol = [&](const std::string& node, const std::string& key) {
    const Json body = Json::object(
        {{"token", cluster.token()}, {"csr", *net::make_csr(key, node)}, {"node", node}});
    return send(enrolment, "/gateway/v1/enroll", body, {.address = "10.0.0.9:1"}).status;
  };
  const std::string key = *net::make_key(), other = *net::make_key();
  ASSERT_EQ(enrol("line7", other), 200);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(enrol("line7", key), 403);
  EXPECT_EQ(enrol("line7", key), 429);
  EXPECT_EQ(enrol("line8", key), 200);
}

TEST(SharedJoinToken, ConcurrentGatewaysCreateOneToken) {
  Cluster cluster;
  std::vector<std::unique_ptr<Rng>> rngs;
  for (std::uint64_t i = 0; i < 8; ++i) rngs.push_back(seeded_rng(100 + i));
  std::atomic<int> made{0};
  {
    std::vector<std::jthread> threads;
    for (auto& rng : rngs) {
      threads.emplace_back([&] {
        const auto ensured = ensure_shared_join_token(cluster.ctx_, cluster.client_, kSecret,
                                                      cluster.authority_.ca_sha256(), *rng);
        ASSERT_TRUE(ensured.ok()) << ensured.error();
        made += *ensured == TokenChange::kCreated ? 1 : 0;
      });
    }
  }
  EXPECT_EQ(made, 1);
  const std::string token = cluster.token();
  EXPECT_EQ(cluster.ensure().value(), TokenChange::kUnchanged);
  EXPECT_EQ(cluster.token(), token);
}

TEST(SharedJoinToken, NewAuthorityGetsNewTokenInExistingSecret) {
  Cluster cluster;
  cluster.create(
      secrets(),
      Json::object({{"metadata", Json::object({{"name", kSecret.name}, {"namespace", kSecret.ns}})},
                    {"data", Json::object({{"note", codec::base64("mine")}})}}));
  ASSERT_EQ(cluster.ensure().value(), TokenChange::kCreated);
  const std::string before = cluster.token();
  const std::string ca(64, 'a');
  ASSERT_EQ(
      ensure_shared_join_token(cluster.ctx_, cluster.client_, kSecret, ca, *cluster.rng_).value(),
      TokenChange::kCreated);
  const JoinToken now = *JoinToken::parse(cluster.token());
  EXPECT_EQ(now.ca_sha256, ca);
  EXPECT_NE(now.secret, JoinToken::parse(before)->secret);
  EXPECT_EQ(cluster.client_.get(cluster.ctx_, secrets(), kSecret)->at("data/note").as_string(),
            codec::base64("mine"));
}

TEST(SharedJoinToken, ForeignTokenIsNotReplaced) {
  Cluster cluster;
  const std::string foreign_token = codec::base64("a token of something else");
  cluster.create(
      secrets(),
      Json::object({{"metadata", Json::object({{"name", kSecret.name}, {"namespace", kSecret.ns}})},
                    {"data", Json::object({{"token", foreign_token}})}}));
  const auto ensured = cluster.ensure();
  ASSERT_FALSE(ensured.ok());
  EXPECT_EQ(ensured.error().code(), Code::kCorrupt);
  EXPECT_EQ(ensured.error().message().find("a token of"), std::string::npos);
  EXPECT_EQ(cluster.client_.get(cluster.ctx_, secrets(), kSecret)->at("data/token").as_string(),
            foreign_token);
}

TEST(SharedJoinToken, NodeKeySecretOfAnotherTypeIsNotUsed) {
  Cluster cluster;
  cluster.add_node("line7");
  cluster.add_pod(Json::object({{"node", "line7"}}));
  ASSERT_TRUE(cluster.ensure().ok());
  cluster.create(secrets(),
                 Json::object({{"metadata", Json::object({{"name", "node-key-line7"},
                                                          {"namespace", "varda-system"}})}}));
  Enrolment enrolment(cluster.client_, cluster.authority_, cluster.options());
  const Json body = Json::object({{"token", cluster.token()},
                                  {"csr", *net::make_csr(*net::make_key(), "line7")},
                                  {"node", "line7"}});
  EXPECT_EQ(send(enrolment, "/gateway/v1/enroll", body, {.address = "10.0.0.7:1"}).status, 503);
}

TEST(SharedJoinToken, AnyTextButFalseOrBlankRevokesEvenWithoutToken) {
  Cluster cluster;
  cluster.add_node("line7");
  cluster.add_pod(Json::object({{"node", "line7"}}));
  ASSERT_TRUE(cluster.ensure().ok());
  const std::string token = cluster.token();
  Enrolment::Options options = cluster.options();
  options.failures_in_a_row = 100;
  Enrolment enrolment(cluster.client_, cluster.authority_, options);
  const auto set = [&](const char* key, const Json& value) {
    const Json patch = Json::object({{"data", Json::object({{key, value}})}});
    ASSERT_TRUE(
        cluster.client_.patch(cluster.ctx_, secrets(), kSecret, kube::PatchType::kMerge, patch)
            .ok());
  };
  const Json body = Json::object(
      {{"token", token}, {"csr", *net::make_csr(*net::make_key(), "line7")}, {"node", "line7"}});
  const std::pair<std::string, bool> cases[] = {
      {"true\n", true}, {" true", true},    {"True", true},  {"yes", true},
      {"1", true},      {"0", true},        {"False", true}, {"", false},
      {"false", false}, {"false\n", false}, {" \n", false},  {"falsehood", true}};
  for (const auto& [text, revoked] : cases) {
    SCOPED_TRACE(text);
    set("revoked", codec::base64(text));
    EXPECT_EQ(find_shared_join_token(cluster.ctx_, cluster.client_, kSecret).value()->revoked,
              revoked);
    EXPECT_EQ(send(enrolment, "/gateway/v1/enroll", body, {.address = "10.0.0.7:1"}).status,
              revoked ? 403 : 200);
  }
  // A revoked Secret stays revoked without its token, or with another text in its place. Without
  // the mark there is another token.
  set("revoked", codec::base64("true\n"));
  for (const Json& invalid : {Json(codec::base64("nonsense")), Json("")}) {
    set("token", invalid);
    EXPECT_EQ(cluster.ensure().value(), TokenChange::kUnchanged);
  }
  set("token", nullptr);
  EXPECT_EQ(cluster.ensure().value(), TokenChange::kUnchanged);
  EXPECT_EQ(cluster.token(), "");
  set("revoked", nullptr);
  EXPECT_EQ(cluster.ensure().value(), TokenChange::kCreated);
  EXPECT_NE(cluster.token(), "");
}

TEST(SharedJoinToken, UnreadableSharedTokenDoesNotBlockOwnToken) {
  Cluster cluster;
  cluster.add_node("line7");
  cluster.add_pod(Json::object({{"node", "line7"}}));
  ASSERT_TRUE(cluster.ensure().ok());
  // Simulates a gateway without the right to get that Secret.
  const auto transport = net::loopback(net::inline_handler([&](const net::Request& request) {
    if (request.path() == "/api/v1/namespaces/varda-edge/secrets/varda-agent-join") {
      net::Response response;
      response.status = 403;
      return response;
    }
    net::ClientRequest onward{
        .method = request.method, .url = "http://in-memory" + request.target, .body = request.body};
    onward.headers = request.headers;
    const auto answer = cluster.api_.transport().call(cluster.ctx_, std::move(onward));
    net::Response response;
    response.status = answer.ok() ? answer->status : 500;
    response.body = answer.ok() ? answer->body : answer.error().message();
    return response;
  }));
  const kube::Client client(*transport, {});
  Enrolment enrolment(client, cluster.authority_, cluster.options());
  const auto enrol = [&](const std::string& token) {
    const Json body = Json::object(
        {{"token", token}, {"csr", *net::make_csr(*net::make_key(), "line7")}, {"node", "line7"}});
    return send(enrolment, "/gateway/v1/enroll", body, {.address = "10.0.0.7:1"});
  };
  EXPECT_EQ(enrol(cluster.token()).status, 503);
  const net::Response own = enrol(cluster.own_token("line7"));
  EXPECT_EQ(own.status, 200) << own.body;
}

TEST(SharedJoinToken, KeeperCreatesTokenAndStopsOnRequest) {
  Cluster cluster;
  std::stop_source stop;
  std::atomic<bool> ended{false};
  const std::jthread runner([&] {
    run_join_secret(Context(stop.get_token()), cluster.client_, kSecret,
                    cluster.authority_.ca_sha256(), *cluster.rng_);
    ended = true;
  });
  EXPECT_TRUE(eventually("the keeper makes the token", [&] { return !cluster.token().empty(); }));
  const std::string token = cluster.token();
  EXPECT_FALSE(ended) << "the keeper stays until it is stopped";
  stop.request_stop();
  ASSERT_TRUE(eventually("the keeper ends", [&] { return ended.load(); }));
  EXPECT_EQ(cluster.token(), token);
}

TEST(JoinSecretName, JoinSecretNameNeedsNamespaceAndName) {
  EXPECT_EQ(parse_join_secret("varda-edge/varda-agent-join").value(), kSecret);
  for (const char* text : {"", "/", "a", "a/", "/a", "a/b/c", "A/b", "a/B", "a.b/c"})
    EXPECT_FALSE(parse_join_secret(text).ok()) << text;
}

TEST(NodeKey, ForgettingNeedsKnownAndValidName) {
  Cluster cluster;
  EXPECT_EQ(forget_node_key(cluster.ctx_, cluster.client_, "line7").error().code(),
            Code::kNotFound);
  EXPECT_EQ(forget_node_key(cluster.ctx_, cluster.client_, "../x").error().code(), Code::kInvalid);
}

TEST(NodeKey, OnlyTheNewestForgottenKeysAreRemembered) {
  Cluster cluster;
  const auto key = [](std::size_t i) { return codec::Sha256::of(std::to_string(i)).hex(); };
  const auto claim = [&](std::size_t i) {
    return claim_node_key(cluster.ctx_, cluster.client_, "line7", key(i),
                          {.be_first = true, .follow = true})
        .value();
  };
  for (std::size_t i = 0; i < kRefusedKeysMax + 3; ++i) {
    ASSERT_EQ(claim(i), KeyClaim::kIsTheNodes) << i;
    ASSERT_TRUE(forget_node_key(cluster.ctx_, cluster.client_, "line7").ok());
    for (std::size_t j = i + 1 - std::min(i + 1, kRefusedKeysMax); j <= i; ++j)
      EXPECT_EQ(claim(j), KeyClaim::kIsForgotten) << j;
  }
  EXPECT_EQ(claim(0), KeyClaim::kIsTheNodes);
}

TEST(NodeKey, DamagedKeyRecordAdmitsNoKey) {
  Cluster cluster;
  const KeyRights rights{.be_first = true, .follow = true};
  const std::string key = codec::Sha256::of("a").hex();
  ASSERT_TRUE(claim_node_key(cluster.ctx_, cluster.client_, "line7", key, rights).ok());
  for (const std::string member : {"key-sha256", "refused-sha256"}) {
    const Json patch =
        Json::object({{"data", Json::object({{member, codec::base64("no digest")}})}});
    ASSERT_TRUE(cluster.client_
                    .patch(cluster.ctx_, secrets(), {"varda-system", "node-key-line7"},
                           kube::PatchType::kMerge, patch)
                    .ok());
    EXPECT_EQ(claim_node_key(cluster.ctx_, cluster.client_, "line7", key, rights).error().code(),
              Code::kCorrupt);
    EXPECT_EQ(forget_node_key(cluster.ctx_, cluster.client_, "line7").error().code(),
              Code::kCorrupt);
  }
}

}  // namespace join_secret_test
}  // namespace varda::gateway
