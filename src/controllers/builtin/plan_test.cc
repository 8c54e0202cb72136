// The pure halves: binding, roll-outs, endpoints, liveness.

#include <algorithm>
#include <gtest/gtest.h>

#include "codec/yaml.h"
#include "controllers/builtin/deployment.h"
#include "controllers/builtin/nodes.h"
#include "controllers/builtin/scheduler.h"
#include "controllers/builtin/service.h"

namespace varda::controllers {
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

std::shared_ptr<const api::Node> node(const std::string& name, const std::string& rest = "", const std::string& ready = "True") {
  return object<api::Node>("{apiVersion: v1, kind: Node, metadata: {name: " + name + ", labels: {kubernetes.io/hostname: " + name +
                           ", size: '5'}}, spec: {" + rest + "}, status: {conditions: [{type: Ready, status: '" + ready + "'}]}}");
}

std::shared_ptr<const api::Pod> pod(const std::string& spec) {
  return object<api::Pod>("{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {" + spec + "}}");
}

TEST(SchedulerPlan, CasesOfConstraints) {
  const std::vector<std::shared_ptr<const api::Node>> nodes = {
      node("cloud"), node("edge0", "taints: [{key: edge, value: far, effect: NoSchedule}]"), node("lost", "", "Unknown"),
      node("closed", "unschedulable: true")};
  struct Case {
    std::string spec, expected;
  };
  const std::string affinity = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [";
  const Case cases[] = {
      {"", "cloud"},
      {"nodeSelector: {kubernetes.io/hostname: cloud}", "cloud"},
      {"nodeSelector: {kubernetes.io/hostname: edge0}",
       "!0/4 nodes are available: 3 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint {edge: "
       "far}."},
      {"nodeSelector: {kubernetes.io/hostname: edge0}, tolerations: [{key: edge, value: far, effect: NoSchedule}]", "edge0"},
      {"nodeSelector: {kubernetes.io/hostname: edge0}, tolerations: [{key: edge, value: near}]", "!"},
      {"nodeSelector: {kubernetes.io/hostname: edge0}, tolerations: [{key: edge, operator: Exists, effect: NoExecute}]", "!"},
      {"nodeSelector: {kubernetes.io/hostname: edge0}, tolerations: [{operator: Exists}]", "edge0"},
      {"nodeSelector: {kubernetes.io/hostname: lost}",
       "!0/4 nodes are available: 3 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unreachable."},
      {"nodeSelector: {kubernetes.io/hostname: lost}, tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists}]",
       "lost"},
      {"nodeSelector: {kubernetes.io/hostname: closed}", "!"},
      {affinity + "{matchFields: [{key: metadata.name, operator: In, values: [cloud]}]}]}}}", "cloud"},
      {affinity + "{matchFields: [{key: metadata.name, operator: In, values: [lost]}]}]}}}", "!"},
      {affinity + "{matchExpressions: [{key: kubernetes.io/hostname, operator: NotIn, values: [cloud]}]}]}}}", "!"},
      {affinity + "{matchExpressions: [{key: nope, operator: Exists}]}, {matchExpressions: [{key: size, operator: Gt, values: "
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

constexpr const char* kDeployment = R"(
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default, uid: u1, generation: 2}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: one}]}
)";

/// Plays Deployment, pods and their runner over rounds.
class Rollout {
 public:
  explicit Rollout(const std::string& text = kDeployment) : json_(*codec::parse_yaml(text)) {}

  Json& spec() { return json_["spec"]; }
  void change_image(const std::string& image) {
    spec()["template"]["spec"]["containers"].array_items()[0].set("image", image);
    json_["metadata"].set("generation", json_["metadata"]["generation"].as_integer() + 1);
  }

  DeploymentPlan plan() const {
    PodList pods;
    for (const auto& [name, pod] : pods_) pods.push_back(std::make_shared<const api::Pod>(*api::Pod::from_json(pod)));
    return plan_deployment(*api::Deployment::from_json(json_), pods, now_, 10s);
  }
  /// One reconcile.
  DeploymentPlan step() {
    DeploymentPlan plan = this->plan();
    for (const auto& pod : plan.remove) pods_.erase(pod->metadata.name);
    for (Json pod : plan.create) {
      const std::string name = std::as_const(pod)["metadata"]["generateName"].as_string() + std::to_string(next_++);
      pod["metadata"].set("name", name);
      pod["metadata"].set("creationTimestamp", meta::format_time(now_));
      pods_.emplace(name, std::move(pod));
    }
    json_.set("status", plan.status);
    return plan;
  }
  void set_ready(const std::string& name, const std::string& ready = "True") {
    pods_.at(name)["spec"].set("nodeName", "n");
    pods_.at(name).set(
        "status", Json::object({{"phase", "Running"},
                                {"conditions",
                                 Json::array({Json::object(
                                     {{"type", "Ready"}, {"status", ready}, {"lastTransitionTime", meta::format_time(now_)}})})}}));
  }
  void fail(const std::string& name) { pods_.at(name).set("status", Json::object({{"phase", "Failed"}})); }
  void all_ready() {
    for (const auto& name : names()) {
      if (std::as_const(pods_.at(name)).at("status/phase").as_string().empty()) set_ready(name);
    }
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, pod] : pods_) out.push_back(name);
    return out;
  }
  std::size_t of_image(const std::string& image) const {
    return static_cast<std::size_t>(std::count_if(pods_.begin(), pods_.end(), [&](const auto& item) {
      return item.second["spec"]["containers"].as_array()[0]["image"].as_string() == image;
    }));
  }
  std::size_t ready() const {
    std::size_t count = 0;
    for (const auto& [name, pod] : pods_) count += api::Pod::from_json(pod)->ready();
    return count;
  }
  void pass(std::chrono::seconds time) { now_ += time; }
  void drop(const std::string& name) { pods_.erase(name); }
  std::string reason(const char* type) const {
    for (const Json& condition : json_.at("status/conditions").as_array()) {
      if (condition["type"].as_string() == type) return condition["status"].as_string() + " " + condition["reason"].as_string();
    }
    return "";
  }
  std::int64_t status(const char* field) const { return json_["status"][field].as_integer(); }
  void expect_rest() {
    const Json before = json_["status"];
    const DeploymentPlan plan = this->plan();
    EXPECT_TRUE(plan.create.empty());
    EXPECT_TRUE(plan.remove.empty());
    EXPECT_EQ(plan.status, before) << codec::write_json(plan.status) << codec::write_json(before);
  }
  void run() {
    for (int i = 0; i < 30; ++i) {
      step();
      all_ready();
    }
  }

 private:
  Json json_;
  std::map<std::string, Json> pods_;
  WallTime now_ = *meta::parse_time("2024-05-01T10:00:00Z");
  int next_ = 0;
};

TEST(DeploymentPlan, MakesItsPodsAndThenRests) {
  Rollout rollout;
  EXPECT_EQ(rollout.step().create.size(), 3u);
  EXPECT_EQ(rollout.reason("Available"), "False MinimumReplicasUnavailable");
  rollout.step();
  EXPECT_EQ(rollout.reason("Progressing"), "True ReplicaSetUpdated");
  EXPECT_EQ(rollout.status("unavailableReplicas"), 3);
  rollout.all_ready();
  rollout.step();
  EXPECT_EQ(rollout.reason("Available"), "True MinimumReplicasAvailable");
  EXPECT_EQ(rollout.reason("Progressing"), "True NewReplicaSetAvailable");
  EXPECT_EQ(rollout.status("readyReplicas"), 3);
  EXPECT_EQ(rollout.status("observedGeneration"), 2);
  rollout.pass(3600s);
  rollout.expect_rest();
}

TEST(DeploymentPlan, PodsCarryTheTemplateAndItsHash) {
  Rollout rollout;
  const DeploymentPlan plan = rollout.plan();
  const Json& pod = plan.create[0];
  const std::string hash = pod.at("metadata/labels/pod-template-hash").as_string();
  EXPECT_EQ(hash.size(), 10u);
  EXPECT_EQ(pod.at("metadata/generateName").as_string(), "web-" + hash + "-");
  EXPECT_EQ(pod.at("metadata/labels/app").as_string(), "web");
  EXPECT_EQ(pod.at("spec/containers/0/image").as_string(), "one");
}

TEST(DeploymentPlan, HashDoesNotDependOnTheOrderOfMembers) {
  EXPECT_EQ(template_hash(*codec::parse_yaml("{a: 1, b: {c: [1, {x: 1, y: 2}], d: 2}}")),
            template_hash(*codec::parse_yaml("{b: {d: 2, c: [1, {y: 2, x: 1}]}, a: 1}")));
  EXPECT_NE(template_hash(*codec::parse_yaml("{a: 1}")), template_hash(*codec::parse_yaml("{a: 2}")));
}

TEST(DeploymentPlan, RollingUpdateKeepsItsBoundsAtEveryStep) {
  for (const auto& [surge, unavailable] : {std::pair<int, int>{1, 0}, {0, 1}, {2, 1}, {0, 0}, {3, 3}}) {
    SCOPED_TRACE(std::to_string(surge) + "/" + std::to_string(unavailable));
    Rollout rollout;
    rollout.spec()["strategy"]["rollingUpdate"] = Json::object({{"maxSurge", surge}, {"maxUnavailable", unavailable}});
    rollout.run();
    rollout.change_image("two");
    for (int i = 0; i < 40; ++i) {
      rollout.step();
      EXPECT_LE(rollout.names().size(), 3u + static_cast<std::size_t>(surge));
      EXPECT_GE(rollout.ready() + static_cast<std::size_t>(std::max(unavailable, surge == 0 ? 1 : 0)), 3u);
      // One pod a round becomes ready.
      for (const auto& name : rollout.names()) {
        Rollout before = rollout;
        before.all_ready();
        if (before.ready() > rollout.ready()) {
          rollout.set_ready(name);
          break;
        }
      }
      rollout.all_ready();
    }
    EXPECT_EQ(rollout.of_image("two"), 3u);
    EXPECT_EQ(rollout.of_image("one"), 0u);
    EXPECT_EQ(rollout.reason("Progressing"), "True NewReplicaSetAvailable");
    rollout.expect_rest();
  }
}

TEST(DeploymentPlan, VersionThatNeverGetsReadyLeavesTheOldOneServing) {
  Rollout rollout;
  rollout.run();
  rollout.change_image("broken");
  for (int i = 0; i < 10; ++i) rollout.step();
  EXPECT_EQ(rollout.of_image("one"), 3u);
  EXPECT_EQ(rollout.of_image("broken"), 1u);
  EXPECT_EQ(rollout.reason("Available"), "True MinimumReplicasAvailable");
  rollout.pass(601s);
  rollout.step();
  EXPECT_EQ(rollout.reason("Progressing"), "False ProgressDeadlineExceeded");
  rollout.expect_rest();
  rollout.change_image("one");  // back
  rollout.run();
  EXPECT_EQ(rollout.of_image("one"), 3u);
  EXPECT_EQ(rollout.of_image("broken"), 0u);
  EXPECT_EQ(rollout.reason("Progressing"), "True NewReplicaSetAvailable");
}

TEST(DeploymentPlan, RecreateNeverRunsTwoVersionsAtOnce) {
  Rollout rollout;
  rollout.spec().set("strategy", Json::object({{"type", "Recreate"}}));
  rollout.run();
  rollout.change_image("two");
  for (int i = 0; i < 10; ++i) {
    rollout.step();
    EXPECT_TRUE(rollout.of_image("one") == 0 || rollout.of_image("two") == 0);
    rollout.all_ready();
  }
  EXPECT_EQ(rollout.of_image("two"), 3u);
}

TEST(DeploymentPlan, ScalingDownTakesPodsThatAreNotReadyFirst) {
  Rollout rollout;
  rollout.run();
  const std::string victim = rollout.names()[1];
  rollout.set_ready(victim, "False");
  rollout.spec().set("replicas", 2);
  rollout.step();
  const auto names = rollout.names();
  EXPECT_EQ(names.size(), 2u);
  EXPECT_EQ(std::count(names.begin(), names.end(), victim), 0);
  rollout.spec().set("replicas", 0);
  rollout.step();
  rollout.step();
  EXPECT_TRUE(rollout.names().empty());
  EXPECT_EQ(rollout.reason("Available"), "True MinimumReplicasAvailable");
  rollout.spec().set("replicas", 5);
  rollout.step();
  EXPECT_EQ(rollout.names().size(), 5u);
}

TEST(DeploymentPlan, LostPodsAreReplacedAndThatIsNoRollOut) {
  Rollout rollout;
  rollout.run();
  rollout.drop(rollout.names()[0]);
  rollout.step();
  EXPECT_EQ(rollout.names().size(), 3u);
  EXPECT_EQ(rollout.reason("Progressing"), "True NewReplicaSetAvailable");
}

TEST(DeploymentPlan, FailedPodsAreReplacedOnceTheyAreOldEnough) {
  Rollout rollout;
  rollout.run();
  const std::string victim = rollout.names()[0];
  rollout.fail(victim);
  const DeploymentPlan early = rollout.step();
  EXPECT_TRUE(early.remove.empty());
  ASSERT_TRUE(early.again);
  EXPECT_LE(*early.again, 10s);
  rollout.pass(11s);
  const DeploymentPlan late = rollout.step();
  ASSERT_EQ(late.remove.size(), 1u);
  EXPECT_EQ(late.remove[0]->metadata.name, victim);
  EXPECT_EQ(late.create.size(), 1u);
}

TEST(DeploymentPlan, MinReadySecondsDelayAvailability) {
  Rollout rollout;
  rollout.spec().set("minReadySeconds", 30);
  rollout.step();
  rollout.all_ready();
  const DeploymentPlan plan = rollout.step();
  EXPECT_EQ(rollout.status("readyReplicas"), 3);
  EXPECT_EQ(rollout.status("availableReplicas"), 0);
  ASSERT_TRUE(plan.again);
  EXPECT_EQ(*plan.again, 30s);
  rollout.pass(30s);
  rollout.step();
  EXPECT_EQ(rollout.status("availableReplicas"), 3);
}

TEST(DeploymentPlan, SelectorThatDoesNotMatchTheTemplateMakesNothing) {
  Rollout rollout;
  rollout.spec()["selector"] = Json::object({{"matchLabels", Json::object({{"app", "other"}})}});
  const DeploymentPlan plan = rollout.plan();
  EXPECT_TRUE(plan.create.empty());
  EXPECT_NE(plan.problem, "");
}

std::shared_ptr<const api::Pod> backend(const std::string& name, const std::string& ip, const std::string& ready,
                                        const std::string& more = "") {
  return object<api::Pod>(
      "{apiVersion: v1, kind: Pod, metadata: {name: " + name + ", namespace: default, uid: u-" + name + ", labels: {app: web}" +
      more + "}, spec: {nodeName: node1, containers: [{name: c, image: i, ports: [{name: http, containerPort: 8080}]}]}, " +
      "status: {phase: Running, podIP: '" + ip + "', conditions: [{type: Ready, status: '" + ready + "'}]}}");
}

constexpr const char* kService =
    "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: default}, spec: {type: NodePort, selector: {app: web}, "
    "ports: [{name: http, port: 80, targetPort: http, nodePort: 30080}]}}";

TEST(ServicePlan, ReadyPodsAreBackendsAndOthersAreListed) {
  const auto service = object<api::Service>(kService);
  const ServicePlan plan = plan_service(
      *service, {backend("a", "127.0.0.2", "True"), backend("b", "127.0.0.3", "False"),
                 backend("c", "127.0.0.4", "True", ", deletionTimestamp: '2024-05-01T10:00:00Z'"), backend("d", "", "True")});
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

TEST(ServicePlan, WithoutASelectorTheEndpointsAreSomebodyElses) {
  EXPECT_FALSE(
      plan_service(*object<api::Service>("{apiVersion: v1, kind: Service, metadata: {name: x}, spec: {ports: [{port: 80}]}}"), {})
          .managed);
}

TEST(ServicePlan, ClusterIpOpensNoPort) {
  const auto service = object<api::Service>(
      "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: ClusterIP, selector: {app: web}, ports: [{port: "
      "9000}]}}");
  const ServicePlan plan = plan_service(*service, {backend("a", "127.0.0.2", "True")});
  EXPECT_EQ(plan.ports[0].node_port, 0);
  EXPECT_EQ(plan.endpoints.at("subsets/0/ports/0/port").as_integer(), 9000);
}

TEST(Liveness, GraceDelaysTheLossButNotTheReturn) {
  const SteadyTime now{100s};
  EXPECT_EQ(judge({.connected = true, .since = now}, now, 2s).state, Liveness::State::kConnected);
  const Liveness fresh = judge({.connected = false, .since = now - 500ms}, now, 2s);
  EXPECT_EQ(fresh.state, Liveness::State::kUndecided);
  EXPECT_EQ(fresh.again, 1500ms);
  EXPECT_EQ(judge({.connected = false, .since = now - 2s}, now, 2s).state, Liveness::State::kDisconnected);
}

TEST(NodeSessions, OnlyNodesCount) {
  NodeSessions sessions;
  std::vector<std::string> told;
  sessions.on_change([&](const std::string& node) { told.push_back(node); });
  sessions.opened({.name = "varda-admin", .groups = {"system:masters"}});
  sessions.opened({.name = "system:node:edge0", .groups = {"system:nodes"}});
  EXPECT_TRUE(sessions.of("edge0").connected);
  EXPECT_FALSE(sessions.of("cloud").connected);
  sessions.closed({.name = "system:node:edge0", .groups = {"system:nodes"}});
  EXPECT_FALSE(sessions.of("edge0").connected);
  EXPECT_EQ(told, (std::vector<std::string>{"edge0", "edge0"}));
}

}  // namespace
}  // namespace varda::controllers
