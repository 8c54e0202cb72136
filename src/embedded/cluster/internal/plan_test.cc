// The pure parts: binding, roll-outs, endpoints, liveness.

#include <algorithm>
#include <gtest/gtest.h>

#include "cluster/internal/nodes.h"
#include "cluster/internal/scheduler.h"
#include "cluster/service.h"
#include "codec/yaml.h"

namespace varda::cluster {
namespace {

using codec::Json;
using namespace std::chrono_literals;

template <typename T>
std::shared_ptr<const T> object(std::string_view text) {
  auto json = codec::parse_yaml(text);
  EXPECT_TRUE(json.ok()) << (json.ok() ? "" : json.error().message()) << text;
  auto typed = T::from_json(*json);
  EXPECT_TRUE(typed.ok()) << (typed.ok() ? "" : typed.error().message());
  return std::make_shared<const T>(*typed);
}

std::shared_ptr<const api::Node> node(const std::string& name, const std::string& more = "",
                                      const std::string& ready = "True") {
  return object<api::Node>("{apiVersion: v1, kind: Node, metadata: {name: " + name +
                           ", labels: {kubernetes.io/hostname: " + name + ", size: '5'}}, spec: {" +
                           more + "}, status: {conditions: [{type: Ready, status: '" + ready +
                           "'}]}}");
}

std::shared_ptr<const api::Pod> pod(const std::string& spec) {
  return object<api::Pod>(
      "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {" + spec + "}}");
}

TEST(SchedulerPlan, ConstraintsSelectTheNode) {
  const std::vector<std::shared_ptr<const api::Node>> nodes = {
      node("cloud"), node("edge0", "taints: [{key: edge, value: far, effect: NoSchedule}]"),
      node("lost", "", "Unknown"), node("closed", "unschedulable: true")};
  struct Case {
    std::string spec, expected;
  };
  const std::string affinity =
      "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
      "{nodeSelectorTerms: [";
  const Case cases[] = {
      {"", "cloud"},
      {"nodeSelector: {kubernetes.io/hostname: cloud}", "cloud"},
      {"nodeSelector: {kubernetes.io/hostname: edge0}",
       "!0/4 nodes are available: 3 node(s) didn't match Pod's node affinity/selector, 1 node(s) "
       "had untolerated taint {edge: "
       "far}."},
      {"nodeSelector: {kubernetes.io/hostname: edge0}, tolerations: [{key: edge, value: far, "
       "effect: NoSchedule}]",
       "edge0"},
      {"nodeSelector: {kubernetes.io/hostname: edge0}, tolerations: [{key: edge, value: near}]",
       "!"},
      {"nodeSelector: {kubernetes.io/hostname: edge0}, tolerations: [{key: edge, operator: Exists, "
       "effect: NoExecute}]",
       "!"},
      {"nodeSelector: {kubernetes.io/hostname: edge0}, tolerations: [{operator: Exists}]", "edge0"},
      {"nodeSelector: {kubernetes.io/hostname: lost}",
       "!0/4 nodes are available: 3 node(s) didn't match Pod's node affinity/selector, 1 node(s) "
       "were unreachable."},
      {"nodeSelector: {kubernetes.io/hostname: lost}, tolerations: [{key: "
       "node.kubernetes.io/unreachable, operator: Exists}]",
       "lost"},
      {"nodeSelector: {kubernetes.io/hostname: closed}", "!"},
      {affinity + "{matchFields: [{key: metadata.name, operator: In, values: [cloud]}]}]}}}",
       "cloud"},
      {affinity + "{matchFields: [{key: metadata.name, operator: In, values: [lost]}]}]}}}", "!"},
      {affinity + "{matchExpressions: [{key: kubernetes.io/hostname, operator: NotIn, values: "
                  "[cloud]}]}]}}}",
       "!"},
      {affinity + "{matchExpressions: [{key: nope, operator: Exists}]}, {matchExpressions: [{key: "
                  "size, operator: Gt, values: "
                  "['4']}]}]}}}",
       "cloud"},
      {affinity + "{matchExpressions: [{key: size, operator: Lt, values: ['5']}]}]}}}", "!"},
      {affinity + "{matchExpressions: [{key: nope, operator: DoesNotExist}]}]}}}", "cloud"},
      {affinity + "{}]}}}", "!"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.spec);
    const Binding binding = plan_binding(*pod(c.spec), nodes, {});
    if (c.expected[0] != '!') {
      EXPECT_EQ(binding.node, c.expected) << binding.message;
    } else {
      EXPECT_EQ(binding.node, "");
      EXPECT_TRUE(c.expected == "!" || binding.message == c.expected.substr(1)) << binding.message;
    }
  }
  EXPECT_EQ(plan_binding(*pod(""), {}, {}).message, "0/0 nodes are available.");
}

TEST(SchedulerPlan, NodeWithTheFewestPodsComesFirst) {
  const std::vector<std::shared_ptr<const api::Node>> nodes = {node("a"), node("b"), node("c")};
  EXPECT_EQ(plan_binding(*pod(""), nodes, {{"a", 2}, {"b", 1}, {"c", 1}}).node, "b");
  EXPECT_EQ(plan_binding(*pod(""), nodes, {{"a", 2}, {"b", 1}}).node, "c");
}

std::shared_ptr<const api::Pod> backend(const std::string& name, const std::string& ip,
                                        const std::string& ready, const std::string& more = "",
                                        const std::string& host = "127.9.0.1") {
  return object<api::Pod>("{apiVersion: v1, kind: Pod, metadata: {name: " + name +
                          ", namespace: default, uid: u-" + name + ", labels: {app: web}" + more +
                          "}, spec: {nodeName: node1, containers: [{name: c, image: i, ports: "
                          "[{name: http, containerPort: 8080}]}]}, " +
                          "status: {phase: Running, hostIP: '" + host + "', podIP: '" + ip +
                          "', conditions: [{type: Ready, status: '" + ready + "'}]}}");
}

constexpr const char* kService =
    "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: default}, spec: {type: "
    "NodePort, selector: {app: web}, "
    "ports: [{name: http, port: 80, targetPort: http, nodePort: 30080}]}}";

TEST(ServicePlan, OnlyReadyPodsAreBackends) {
  const auto service = object<api::Service>(kService);
  const ServicePlan plan = plan_service(
      *service, {backend("a", "127.0.0.2", "True"), backend("b", "127.0.0.3", "False"),
                 backend("c", "127.0.0.4", "True", ", deletionTimestamp: '2024-05-01T10:00:00Z'"),
                 backend("d", "", "True")});
  ASSERT_EQ(plan.ports.size(), 1u);
  EXPECT_EQ(plan.ports[0].node_port, 30080);
  EXPECT_EQ(plan.ports[0].backends, std::vector<std::string>{"127.0.0.2:8080"});
  const Json& subset = plan.endpoints.at("subsets/0");
  EXPECT_EQ(subset.at("addresses/0/ip").as_string(), "127.0.0.2");
  EXPECT_EQ(subset.at("addresses/0/targetRef/name").as_string(), "a");
  EXPECT_EQ(subset.at("notReadyAddresses/0/ip").as_string(), "127.0.0.3");
  EXPECT_EQ(subset.at("ports/0/port").as_integer(), 8080);
  EXPECT_EQ(subset["addresses"].size(), 1u);
  const Json closed = without_ready(plan.endpoints);
  EXPECT_FALSE(closed.at("subsets/0").contains("addresses"));
  EXPECT_EQ(closed.at("subsets/0/notReadyAddresses").size(), 2u);
}

TEST(ServicePlan, LoopbackAddressOfAnotherMachineIsNoBackend) {
  const auto service = object<api::Service>(kService);
  const ServicePlan plan =
      plan_service(*service, {backend("a", "127.64.0.2", "True", "", "192.0.2.10"),
                              backend("b", "127.64.0.3", "True", "", ""),
                              backend("c", "192.0.2.10", "True", "", "192.0.2.10"),
                              backend("d", "127.64.0.4", "True")});
  EXPECT_EQ(plan.ports[0].backends,
            (std::vector<std::string>{"192.0.2.10:8080", "127.64.0.4:8080"}));
  EXPECT_EQ(plan.endpoints.at("subsets/0/addresses").size(), 2u);
}

TEST(ServicePlan, EndpointSliceShowsReadiness) {
  const auto service = object<api::Service>(kService);
  const ServicePlan plan = plan_service(
      *service, {backend("a", "127.0.0.2", "True"), backend("b", "127.0.0.3", "False")});
  const std::vector<Json> open = plan.objects(ServicePlan::Ports::kOpen);
  ASSERT_EQ(open.size(), 2u);
  const auto slice = api::EndpointSlice::from_json(open[0]);
  ASSERT_TRUE(slice.ok()) << slice.error();
  EXPECT_EQ(slice->service_name(), "web");
  ASSERT_EQ(slice->endpoints.size(), 2u);
  EXPECT_TRUE(slice->endpoints[0].ready());
  EXPECT_EQ(slice->endpoints[0].addresses, std::vector<std::string>{"127.0.0.2"});
  EXPECT_FALSE(slice->endpoints[1].ready());
  EXPECT_EQ(slice->ports.front().port, 8080);
  EXPECT_FALSE(
      api::EndpointSlice::from_json(plan.objects(ServicePlan::Ports::kClosed)[0])->any_ready());
  const std::vector<Json> none = plan_service(*service, {}).objects(ServicePlan::Ports::kOpen);
  EXPECT_FALSE(api::EndpointSlice::from_json(none[0])->any_ready())
      << "and the slice is there all the same";
}

TEST(ServicePlan, ServiceWithoutSelectorIsNotManaged) {
  EXPECT_FALSE(
      plan_service(
          *object<api::Service>(
              "{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {ports: [{port: 80}]}}"),
          {})
          .managed);
}

TEST(ServicePlan, ClusterIpOpensNoPort) {
  const auto service = object<api::Service>(
      "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: ClusterIP, selector: "
      "{app: web}, ports: [{port: "
      "9000}]}}");
  const ServicePlan plan = plan_service(*service, {backend("a", "127.0.0.2", "True")});
  EXPECT_EQ(plan.ports[0].node_port, 0);
  EXPECT_EQ(plan.endpoints.at("subsets/0/ports/0/port").as_integer(), 9000);
}

TEST(Liveness, GraceDelaysDisconnectionButNotReconnection) {
  const SteadyTime now{100s};
  EXPECT_EQ(judge({.connected = true, .since = now}, now, 2s).state, Liveness::State::kConnected);
  const Liveness fresh = judge({.connected = false, .since = now - 500ms}, now, 2s);
  EXPECT_EQ(fresh.state, Liveness::State::kUndecided);
  EXPECT_EQ(fresh.again, 1500ms);
  EXPECT_EQ(judge({.connected = false, .since = now - 2s}, now, 2s).state,
            Liveness::State::kDisconnected);
}

TEST(NodeSessions, SessionsOfOtherCallersAreIgnored) {
  NodeSessions sessions;
  std::vector<std::string> notified;
  sessions.on_change([&](const std::string& node) { notified.push_back(node); });
  sessions.opened({.name = "varda-admin", .groups = {"system:masters"}});
  sessions.opened({.name = "system:node:edge0", .groups = {"system:nodes"}});
  EXPECT_TRUE(sessions.of("edge0").connected);
  EXPECT_FALSE(sessions.of("cloud").connected);
  sessions.closed({.name = "system:node:edge0", .groups = {"system:nodes"}});
  EXPECT_FALSE(sessions.of("edge0").connected);
  EXPECT_EQ(notified, (std::vector<std::string>{"edge0", "edge0"}));
}

}  // namespace
}  // namespace varda::cluster
