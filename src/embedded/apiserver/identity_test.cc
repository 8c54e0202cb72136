#include "apiserver/identity.h"

#include <gtest/gtest.h>

#include "apiserver/testing/in_memory.h"

namespace varda::apiserver {
namespace {

using codec::Json;

class NodeRules : public ::testing::Test {
 protected:
  NodeRules()
      : rules_(node_authorizer()),
        api_(options()),
        edge_(api_.transport_as({"system:node:edge0", {"system:nodes"}})) {
    for (const char* name : {"mine", "theirs"}) {
      Json pod = codec::parse_json(R"({"apiVersion":"v1","kind":"Pod","metadata":{},
        "spec":{"containers":[{"name":"c","image":"i","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"used","key":"k"}}}]}]}})")
                     .value();
      pod["metadata"].set("name", name);
      pod["spec"].set("nodeName", std::string(name) == "mine" ? "edge0" : "cloud");
      EXPECT_EQ(api_.post("/api/v1/namespaces/default/pods", pod).status, 201);
    }
    for (const char* name : {"used", "other"}) {
      api_.post("/api/v1/namespaces/default/secrets",
                Json::object({{"apiVersion", "v1"},
                              {"kind", "Secret"},
                              {"metadata", Json::object({{"name", name}})}}));
    }
    api_.post("/api/v1/nodes", Json::object({{"apiVersion", "v1"},
                                             {"kind", "Node"},
                                             {"metadata", Json::object({{"name", "cloud"}})}}));
  }

  InMemoryApiServer::Options options() const {
    InMemoryApiServer::Options out;
    out.server.authorizer = rules_.get();
    return out;
  }

  int status_of(std::string method, std::string target, std::string body = "",
                std::string type = "application/json") {
    net::ClientRequest request;
    request.method = std::move(method);
    request.url = std::move(target);
    request.body = std::move(body);
    if (!request.body.empty()) request.headers.add("Content-Type", std::move(type));
    auto answer = edge_->send(Context::background().with_timeout(std::chrono::seconds(60)),
                              std::move(request));
    return answer.value().status;
  }

  const std::unique_ptr<Authorizer> rules_;
  InMemoryApiServer api_;
  const std::unique_ptr<net::HttpClient> edge_;
};

TEST(Administrators, OnlyAdministratorsMayTakeABackup) {
  const Identity admin{.name = "varda-admin", .groups = {"system:masters"}};
  const Identity node{.name = "system:node:edge0", .groups = {"system:nodes"}};
  const auto refusal = [](const std::optional<Identity>& caller, net::Headers headers = {}) {
    const net::Request request{.method = "GET", .target = "/backup", .headers = std::move(headers)};
    const auto response = refuse_unless_administrator(request, caller, "take a backup");
    return response ? std::to_string(response->status) + " " + response->body : "";
  };
  EXPECT_EQ(refusal(admin), "");
  EXPECT_EQ(refusal(std::nullopt), "401 Unauthorized\n");
  EXPECT_EQ(refusal(node), "403 only administrators may take a backup\n");
  EXPECT_EQ(refusal(Identity{}), "403 only administrators may take a backup\n");
  for (const char* header :
       {"Impersonate-User", "impersonate-group", "IMPERSONATE-UID", "Impersonate-Extra-a"}) {
    EXPECT_EQ(refusal(admin, {{header, "x"}}), "403 impersonated requests may not take a backup\n")
        << header;
  }
}

TEST_F(NodeRules, EveryCallerMayReviewItsOwnAccess) {
  const std::string reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
  const auto may = [&](const std::string& name, const std::string& as) {
    net::ClientRequest request;
    request.method = "POST";
    request.url = reviews;
    request.headers.add("Content-Type", "application/json");
    if (!as.empty()) request.headers.add("Impersonate-User", as);
    if (as.starts_with("system:node:")) request.headers.add("Impersonate-Group", "system:nodes");
    request.body =
        R"({"spec":{"resourceAttributes":{"verb":"get","resource":"pods","namespace":"default","name":")" +
        name + "\"}}}";
    auto answer = api_.transport().send(
        Context::background().with_timeout(std::chrono::seconds(60)), std::move(request));
    std::string text;
    for (auto more = answer->body->read(); more.ok() && more->has_value();
         more = answer->body->read())
      text += **more;
    EXPECT_EQ(answer->status, 201) << text;
    return codec::parse_json(text).value().at("status/allowed").as_bool();
  };
  EXPECT_TRUE(may("theirs", ""));
  EXPECT_TRUE(may("mine", "system:node:edge0"));
  EXPECT_FALSE(may("theirs", "system:node:edge0"));
  EXPECT_FALSE(may("mine", "jane"));
  EXPECT_EQ(status_of("POST", reviews,
                      R"({"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}})"),
            201);
  EXPECT_EQ(status_of("POST", reviews, R"({"spec":{}})"), 422);
  EXPECT_EQ(status_of("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "{}"), 201);
  EXPECT_EQ(status_of("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
                      R"({"spec":{"namespace":"default"}})"),
            201);
}

TEST_F(NodeRules, NodeMayNotImpersonate) {
  net::ClientRequest request;
  request.url = "/api/v1/pods";
  request.headers.add("Impersonate-User", "varda-admin");
  request.headers.add("Impersonate-Group", "system:masters");
  auto answer =
      edge_->send(Context::background().with_timeout(std::chrono::seconds(60)), std::move(request));
  EXPECT_EQ(answer.value().status, 403);
}

TEST_F(NodeRules, NodeReadsItsOwnPodsOnly) {
  const std::string pods = "/api/v1/namespaces/default/pods";
  EXPECT_EQ(status_of("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dedge0"), 200);
  EXPECT_EQ(status_of("GET", "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dedge0"), 200);
  EXPECT_EQ(status_of("GET", "/api/v1/pods"), 403);
  EXPECT_EQ(status_of("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dcloud"), 403);
  EXPECT_EQ(status_of("GET", "/api/v1/pods?fieldSelector=spec.nodeName%21%3Dedge0"), 403);
  EXPECT_EQ(status_of("GET", pods + "/mine"), 200);
  EXPECT_EQ(status_of("GET", pods + "/theirs"), 403);
}

TEST_F(NodeRules, NodeReportsOwnPodsAndDeletesTerminatingOnes) {
  const std::string pods = "/api/v1/namespaces/default/pods";
  const std::string status = R"({"status":{"phase":"Running"}})";
  EXPECT_EQ(status_of("PATCH", pods + "/mine/status", status, "application/merge-patch+json"), 200);
  EXPECT_EQ(status_of("PATCH", pods + "/theirs/status", status, "application/merge-patch+json"),
            403);
  EXPECT_EQ(status_of("PATCH", pods + "/mine", R"({"metadata":{"labels":{"a":"b"}}})",
                      "application/merge-patch+json"),
            403);
  EXPECT_EQ(status_of("DELETE", pods + "/mine?gracePeriodSeconds=0"), 403)
      << "nobody wants it gone yet";
  EXPECT_EQ(api_.remove(pods + "/mine").status, 200);
  EXPECT_EQ(status_of("DELETE", pods + "/mine?gracePeriodSeconds=0"), 200);
  EXPECT_EQ(status_of("DELETE", pods + "/mine?gracePeriodSeconds=0"), 404);
}

TEST_F(NodeRules, NodeReadsTheSecretsItsPodsUse) {
  const std::string secrets = "/api/v1/namespaces/default/secrets";
  EXPECT_EQ(status_of("GET", secrets + "/used"), 200);
  EXPECT_EQ(status_of("GET", secrets + "/other"), 403);
  EXPECT_EQ(status_of("GET", secrets), 403);
  EXPECT_EQ(status_of("GET", "/api/v1/namespaces/kube-system/secrets/used"), 403);
}

TEST_F(NodeRules, NodeCreatesAndReportsItselfOnly) {
  EXPECT_EQ(status_of("POST", "/api/v1/nodes", R"({"metadata":{"name":"edge1"}})"), 403);
  EXPECT_EQ(status_of("POST", "/api/v1/nodes", R"({"metadata":{"name":"edge0"}})"), 201);
  EXPECT_EQ(status_of("PATCH", "/api/v1/nodes/edge0/status", R"({"status":{}})",
                      "application/merge-patch+json"),
            200);
  EXPECT_EQ(status_of("PATCH", "/api/v1/nodes/edge0", R"({"spec":{"unschedulable":true}})",
                      "application/merge-patch+json"),
            403);
  EXPECT_EQ(status_of("GET", "/api/v1/nodes/cloud"), 403);
  EXPECT_EQ(status_of("GET", "/api/v1/nodes"), 403);
}

TEST_F(NodeRules, NodeMayCreateEventsButNoOtherObjects) {
  const std::string event =
      R"({"metadata":{"name":"e"},"involvedObject":{"kind":"Pod","apiVersion":"v1","namespace":"default","name":"mine"},
    "reason":"R","message":"m","type":"Normal"})";
  EXPECT_EQ(status_of("POST", "/api/v1/namespaces/default/events", event), 201);
  EXPECT_EQ(
      status_of("POST", "/api/v1/namespaces/default/configmaps", R"({"metadata":{"name":"c"}})"),
      403);
  EXPECT_EQ(status_of("DELETE", "/api/v1/namespaces/default"), 403);
  EXPECT_EQ(status_of("GET", "/metrics"), 403);
  EXPECT_EQ(status_of("GET", "/apis"), 200) << "discovery is for everybody who is known";
}

TEST_F(NodeRules, NodeMayWriteStatusButNotMetadata) {
  ASSERT_EQ(status_of("POST", "/api/v1/nodes",
                      R"({"metadata":{"name":"edge0","labels":{"kubernetes.io/os":"linux"}}})"),
            201);
  const std::string merge = "application/merge-patch+json", json = "application/json-patch+json";
  for (const std::string target :
       {"/api/v1/nodes/edge0/status", "/api/v1/namespaces/default/pods/mine/status"}) {
    for (const char* metadata :
         {R"({"labels":{"zone":"x"}})", R"({"finalizers":["a.b/c"]})",
          R"({"annotations":{"a":"b"}})",
          R"({"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"edge0","uid":"u"}]})"}) {
      EXPECT_EQ(status_of("PATCH", target,
                          R"({"status":{},"metadata":)" + std::string(metadata) + "}", merge),
                403)
          << target << metadata;
    }
    EXPECT_EQ(status_of("PATCH", target,
                        R"([{"op":"add","path":"/metadata/labels","value":{"zone":"x"}}])", json),
              403);
    EXPECT_EQ(
        status_of("PATCH", target, R"([{"op":"add","path":"/status/message","value":""}])", json),
        200);
  }
  Json node = api_.get("/api/v1/nodes/edge0").body;
  EXPECT_EQ(status_of("PUT", "/api/v1/nodes/edge0/status", codec::write_json(node)), 200);
  node["metadata"].erase("labels");
  EXPECT_EQ(status_of("PUT", "/api/v1/nodes/edge0/status", codec::write_json(node)), 403);
  EXPECT_EQ(
      api_.get("/api/v1/nodes/edge0").body.at("metadata/labels")["kubernetes.io/os"].as_string(),
      "linux");
}

TEST_F(NodeRules, NodeMayNotCreateItselfWithForeignLabelsOrTaints) {
  for (const char* node :
       {R"({"metadata":{"name":"edge0","labels":{"zone":"x"}}})",
        R"({"metadata":{"name":"edge0","finalizers":["a.b/c"]}})",
        R"({"metadata":{"name":"edge0"},"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}})"}) {
    EXPECT_EQ(status_of("POST", "/api/v1/nodes", node), 403) << node;
  }
  EXPECT_EQ(status_of("POST", "/api/v1/nodes",
                      R"({"metadata":{"name":"edge0","labels":{"edgeai.io/layer":"edge"}}})"),
            201);
}

TEST_F(NodeRules, NodeMayReportValidAddressesOnly) {
  const std::string status = "/api/v1/namespaces/default/pods/mine/status",
                    merge = "application/merge-patch+json";
  for (const char* ip : {"10.0.0.5", "127.64.0.9", "2001:db8::1", ""}) {
    EXPECT_EQ(
        status_of("PATCH", status, R"({"status":{"podIP":")" + std::string(ip) + "\"}}", merge),
        200)
        << ip;
  }
  for (const char* ip :
       {"169.254.169.254", "0.0.0.0", "::", "fe80::1", "224.0.0.1", "ff02::1", "localhost"}) {
    EXPECT_EQ(
        status_of("PATCH", status, R"({"status":{"podIP":")" + std::string(ip) + "\"}}", merge),
        422)
        << ip;
    EXPECT_EQ(
        status_of("PATCH", status, R"({"status":{"hostIP":")" + std::string(ip) + "\"}}", merge),
        422)
        << ip;
  }
  ASSERT_EQ(status_of("POST", "/api/v1/nodes", R"({"metadata":{"name":"edge0"}})"), 201);
  EXPECT_EQ(
      status_of("PATCH", "/api/v1/nodes/edge0/status",
                R"({"status":{"addresses":[{"type":"InternalIP","address":"169.254.169.254"}]}})",
                merge),
      422);
}

TEST_F(NodeRules, NodeWritesEventsAboutItsOwnObjects) {
  const auto event = [&](const std::string& name, const std::string& about) {
    return status_of("POST", "/api/v1/namespaces/default/events",
                     R"({"metadata":{"name":")" + name +
                         R"("},"reason":"R","message":"m","type":"Normal","involvedObject":)" +
                         about + "}");
  };
  EXPECT_EQ(event("a", R"({"kind":"Node","apiVersion":"v1","name":"edge0"})"), 201);
  EXPECT_EQ(event("b", R"({"kind":"Pod","apiVersion":"v1","namespace":"default","name":"mine"})"),
            201);
  EXPECT_EQ(event("c", R"({"kind":"Pod","apiVersion":"v1","namespace":"default","name":"theirs"})"),
            403);
  EXPECT_EQ(event("d", R"({"kind":"Node","apiVersion":"v1","name":"cloud"})"), 403);
  EXPECT_EQ(
      event("e", R"({"kind":"Secret","apiVersion":"v1","namespace":"default","name":"used"})"),
      403);
  const std::string merge = "application/merge-patch+json";
  EXPECT_EQ(status_of("PATCH", "/api/v1/namespaces/default/events/b", R"({"count":2})", merge),
            200);
  EXPECT_EQ(status_of("PATCH", "/api/v1/namespaces/default/events/b", R"({"reason":"S"})", merge),
            403);
  EXPECT_EQ(status_of("PATCH", "/api/v1/namespaces/default/events/b",
                      R"({"metadata":{"labels":{"a":"b"}}})", merge),
            403);
  ASSERT_EQ(api_.post("/api/v1/namespaces/default/events",
                      codec::parse_json(R"({"metadata":{"name":"f"},"reason":"R","type":"Normal",
                        "involvedObject":{"kind":"Pod","apiVersion":"v1","namespace":"default","name":"theirs"}})")
                          .value())
                .status,
            201);
  EXPECT_EQ(status_of("PATCH", "/api/v1/namespaces/default/events/f", R"({"count":2})", merge),
            403);
  EXPECT_EQ(status_of("POST", "/apis/events.k8s.io/v1/namespaces/default/events",
                      R"({"metadata":{"name":"g"}})"),
            403);
}

TEST(NodeAuthorizer, NodeMayNotSetWorkOrConnectedConditionOfEdgeNode) {
  const auto rules = node_authorizer();
  const Identity node{"system:node:edge0", {"system:nodes"}};
  Attributes what;
  what.verb = "create";
  what.group = "edgeai.io";
  what.version = "v1alpha1";
  what.resource = "edgenodes";
  what.is_resource = true;
  const auto parsed = [](const char* text) { return codec::parse_json(text).value(); };
  Json with_work = parsed(
      R"({"metadata":{"name":"edge0"},"spec":{"models":[{"versions":[{"credentials":"a/b"}]}]}})");
  EXPECT_EQ(rules->narrow_creation(node, what, with_work, {}).error().code(), Code::kForbidden);
  Json empty = parsed(R"({"metadata":{"name":"edge0"},"spec":{}})");
  EXPECT_TRUE(rules->narrow_creation(node, what, empty, {}).ok());
  EXPECT_TRUE(
      rules->narrow_creation({"varda-admin", {"system:masters"}}, what, with_work, {}).ok());

  what.verb = "patch";
  what.subresource = "status";
  const Json old = parsed(R"({"metadata":{},"status":{"conditions":[{"type":"Connected"}]}})");
  Json now =
      parsed(R"({"metadata":{},"status":{"conditions":[],"lastSeen":"now","agentVersion":"1"}})");
  EXPECT_TRUE(rules->narrow_change(node, what, old, now, {}).ok());
  EXPECT_EQ(
      now,
      parsed(
          R"({"metadata":{},"status":{"conditions":[{"type":"Connected"}],"agentVersion":"1"}})"));
}

TEST(NodeAuthorizer, MetricsAreForMastersAndTheMonitoringGroup) {
  struct Case {
    const char* group;
    const char* verb;
    const char* path;
    bool allowed;
  };
  const auto rules = node_authorizer();
  for (const Case& c : {Case{"system:masters", "get", "/metrics", true},
                        Case{"system:monitoring", "get", "/metrics", true},
                        Case{"system:monitoring", "post", "/metrics", false},
                        Case{"system:monitoring", "get", "/metrics/x", false},
                        Case{"system:nodes", "get", "/metrics", false},
                        Case{"system:authenticated", "get", "/metrics", false}}) {
    Attributes what;
    what.verb = c.verb;
    what.path = c.path;
    EXPECT_EQ(rules->allows({.name = "who", .groups = {c.group}}, what, {}), c.allowed)
        << c.group << " " << c.path;
  }
}

TEST(NodeAuthorizer, DownloadSecretNeedsReferenceAndNamespaceLabel) {
  const auto edge_node =
      codec::parse_json(R"({"spec":{"models":[{"versions":[{},{"credentials":"team-a/files"}]},
    {"versions":[{"credentials":"team-b/files"}]}]}})")
          .value();
  Authorizer::Objects objects;
  objects.get = [&](std::string_view group, std::string_view plural, std::string_view,
                    std::string_view name) -> std::optional<Json> {
    if (plural == "edgenodes" && group == "edgeai.io" && name == "edge0") return edge_node;
    if (plural == "namespaces" && name == "team-a")
      return codec::parse_json(R"({"metadata":{"labels":{"edgeai.io/edge-secrets":"allow"}}})")
          .value();
    if (plural == "namespaces" && name == "team-b")
      return codec::parse_json(R"({"metadata":{"labels":{"edgeai.io/edge-secrets":"no"}}})")
          .value();
    return std::nullopt;
  };
  objects.each = [](std::string_view, std::string_view, const std::function<void(const Json&)>&) {};
  const auto rules = node_authorizer();
  const auto may = [&](const char* node, const char* verb, const char* resource, const char* ns,
                       const char* name) {
    Attributes what;
    what.verb = verb;
    what.version = "v1";
    what.resource = resource;
    what.ns = ns;
    what.name = name;
    what.is_resource = true;
    return rules->allows({std::string("system:node:") + node, {"system:nodes"}}, what, objects);
  };
  EXPECT_TRUE(may("edge0", "get", "secrets", "team-a", "files"));
  EXPECT_FALSE(may("edge1", "get", "secrets", "team-a", "files"))
      << "its EdgeNode does not name it";
  EXPECT_FALSE(may("edge0", "get", "secrets", "team-a", "others"));
  EXPECT_FALSE(may("edge0", "get", "secrets", "team-b", "files"))
      << "the namespace does not allow it";
  EXPECT_FALSE(may("edge0", "get", "secrets", "team-c", "files"));
  EXPECT_FALSE(may("edge0", "list", "secrets", "team-a", ""));
  EXPECT_FALSE(may("edge0", "update", "secrets", "team-a", "files"));
  EXPECT_FALSE(may("edge0", "get", "configmaps", "team-a", "files"));
}

TEST(Identity, NodeNameNeedsTheGroup) {
  EXPECT_EQ((Identity{"system:node:a", {"system:nodes"}}.node()), "a");
  EXPECT_EQ((Identity{"system:node:a", {}}.node()), std::nullopt);
  EXPECT_EQ((Identity{"system:node:", {"system:nodes"}}.node()), std::nullopt);
}

}  // namespace
}  // namespace varda::apiserver
