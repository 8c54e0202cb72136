// DaemonSets, simulated without an API server: nodes, a DaemonSet and its pods over rounds.

#include "cluster/internal/daemon_set.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "cluster/internal/scheduler.h"
#include "codec/yaml.h"

namespace varda::cluster {
namespace daemon_set_test {

using namespace std::chrono_literals;

class Daemon {
 public:
  explicit Daemon(const std::string& strategy = "{type: RollingUpdate}")
      : json_(*codec::parse_yaml("{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, "
                                 "namespace: default, uid: u, generation: 1}, "
                                 "spec: {selector: {matchLabels: {app: d}}, updateStrategy: " +
                                 strategy +
                                 ", template: {metadata: {labels: {app: d}}, spec: {containers: "
                                 "[{name: c, image: one}]}}}}")) {}

  Json& pod_spec() { return json_["spec"]["template"]["spec"]; }
  void change_image(const std::string& image) {
    pod_spec()["containers"].array_items()[0].set("image", image);
  }
  void add_node(const std::string& name, const std::string& spec = "",
                const std::string& ready = "True") {
    const auto json =
        codec::parse_yaml("{apiVersion: v1, kind: Node, metadata: {name: " + name +
                          ", labels: {name: " + name + "}}, spec: {" + spec +
                          "}, status: {conditions: [{type: Ready, status: '" + ready + "'}]}}");
    nodes_[name] = std::make_shared<const api::Node>(*api::Node::from_json(*json));
  }
  void drop_node(const std::string& name) { nodes_.erase(name); }

  DaemonSetPlan plan() const {
    std::vector<std::shared_ptr<const api::Node>> nodes;
    for (const auto& [name, node] : nodes_) nodes.push_back(node);
    PodList pods;
    for (const auto& [name, pod] : pods_)
      pods.push_back(std::make_shared<const api::Pod>(*api::Pod::from_json(pod)));
    return plan_daemon_set(*api::DaemonSet::from_json(json_), nodes, pods, now_, 10s);
  }
  DaemonSetPlan step() {
    DaemonSetPlan plan = this->plan();
    for (const PodPtr& pod : plan.changes.remove) pods_.erase(pod->metadata.name);
    for (Json pod : plan.changes.create) {
      const std::string name = "d-" + std::to_string(next_++);
      pod["metadata"].set("name", name);
      pod["metadata"].set("creationTimestamp", meta::format_time(now_));
      pods_.emplace(name, std::move(pod));
    }
    json_.set("status", plan.status);
    return plan;
  }
  /// Plays the scheduler and the runners.
  void run_pods() {
    std::vector<std::shared_ptr<const api::Node>> nodes;
    for (const auto& [name, node] : nodes_) nodes.push_back(node);
    for (auto& [name, pod] : pods_) {
      if (!std::as_const(pod).at("spec/nodeName").as_string().empty()) continue;
      const Binding binding = plan_binding(*api::Pod::from_json(pod), nodes, {});
      if (binding.node.empty()) continue;
      pod["spec"].set("nodeName", binding.node);
      pod.set(
          "status",
          *codec::parse_yaml(
              "{phase: Running, conditions: [{type: Ready, status: 'True', lastTransitionTime: '" +
              meta::format_time(now_) + "'}]}"));
    }
  }
  void settle() {
    for (int i = 0; i < 12; ++i) {
      step();
      run_pods();
    }
    step();
  }
  std::map<std::string, std::string> images() const {  // by node
    std::map<std::string, std::string> out;
    for (const auto& [name, pod] : pods_)
      out[pod.at("spec/nodeName").as_string()] += pod.at("spec/containers/0/image").as_string();
    return out;
  }
  std::map<std::string, Json>& pods() { return pods_; }
  std::int64_t status(const char* field) const { return json_["status"][field].as_integer(); }
  void pass(std::chrono::seconds time) { now_ += time; }

 private:
  Json json_;
  std::map<std::string, std::shared_ptr<const api::Node>> nodes_;
  std::map<std::string, Json> pods_;
  WallTime now_ = *meta::parse_time("2024-05-01T10:00:00Z");
  int next_ = 0;
};

using Images = std::map<std::string, std::string>;

TEST(DaemonSetPlan, EveryEligibleNodeGetsOnePod) {
  Daemon daemon;
  daemon.add_node("a");
  daemon.add_node("b");
  daemon.add_node("tainted", "taints: [{key: x, effect: NoSchedule}]");
  daemon.add_node("lost", "", "Unknown");
  daemon.add_node("closed", "unschedulable: true");  // daemons run there nevertheless
  daemon.settle();
  EXPECT_EQ(daemon.images(), (Images{{"a", "one"}, {"b", "one"}, {"closed", "one"}}));
  EXPECT_EQ(daemon.status("desiredNumberScheduled"), 3);
  EXPECT_EQ(daemon.status("currentNumberScheduled"), 3);
  EXPECT_EQ(daemon.status("numberReady"), 3);
  EXPECT_EQ(daemon.status("numberAvailable"), 3);
  EXPECT_EQ(daemon.status("updatedNumberScheduled"), 3);
  EXPECT_EQ(daemon.status("observedGeneration"), 1);
  const DaemonSetPlan idle = daemon.plan();
  EXPECT_TRUE(idle.changes.create.empty() && idle.changes.remove.empty());
}

TEST(DaemonSetPlan, PodsFollowAddedLostAndRemovedNodes) {
  Daemon daemon;
  daemon.add_node("a");
  daemon.settle();
  daemon.add_node("b");
  daemon.settle();
  EXPECT_EQ(daemon.images(), (Images{{"a", "one"}, {"b", "one"}}));
  daemon.add_node("b", "", "Unknown");
  daemon.settle();
  EXPECT_EQ(daemon.images(),
            (Images{{"a", "one"}, {"b", "one"}}));  // pods on a disconnected node stay
  EXPECT_EQ(daemon.status("desiredNumberScheduled"), 1);
  EXPECT_EQ(daemon.status("numberMisscheduled"), 1);
  daemon.add_node("b", "taints: [{key: x, effect: NoExecute}]");
  daemon.settle();
  EXPECT_EQ(daemon.images(), (Images{{"a", "one"}}));
  daemon.add_node("c");
  daemon.step();  // created, not bound yet
  daemon.drop_node("c");
  daemon.settle();
  EXPECT_EQ(daemon.pods().size(), 1u);
}

TEST(DaemonSetPlan, NodeAffinityLimitsTheNodes) {
  Daemon daemon;
  daemon.pod_spec().set(
      "affinity",
      *codec::parse_yaml(
          "{nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
          "[{matchExpressions: [{key: name, operator: "
          "In, values: [b]}]}, {matchExpressions: [{key: name, operator: In, values: [c]}]}]}}}"));
  for (const char* name : {"a", "b", "c"}) daemon.add_node(name);
  daemon.settle();
  EXPECT_EQ(daemon.images(), (Images{{"b", "one"}, {"c", "one"}}));
}

TEST(DaemonSetPlan, RollingUpdateReplacesOneNodeAtATime) {
  Daemon daemon;
  for (const char* name : {"a", "b", "c"}) daemon.add_node(name);
  daemon.settle();
  daemon.change_image("two");
  for (int i = 0; i < 12; ++i) {
    daemon.step();
    std::size_t serving = 0;
    for (const auto& [name, pod] : daemon.pods())
      serving += pod.at("status/phase").as_string() == "Running";
    EXPECT_GE(serving, 2u);
    daemon.run_pods();
  }
  daemon.step();
  EXPECT_EQ(daemon.images(), (Images{{"a", "two"}, {"b", "two"}, {"c", "two"}}));
  EXPECT_EQ(daemon.status("updatedNumberScheduled"), 3);
}

TEST(DaemonSetPlan, ABrokenTemplateStopsAtTheFirstNode) {
  Daemon daemon;
  for (const char* name : {"a", "b", "c"}) daemon.add_node(name);
  daemon.settle();
  daemon.change_image("broken");
  for (int i = 0; i < 10; ++i) daemon.step();  // no runner starts the new pod
  std::size_t old = 0;
  for (const auto& [name, pod] : daemon.pods())
    old += pod.at("spec/containers/0/image").as_string() == "one";
  EXPECT_EQ(old, 2u);
  EXPECT_EQ(daemon.status("updatedNumberScheduled"), 1);
  EXPECT_EQ(daemon.status("numberUnavailable"), 1);
}

TEST(DaemonSetPlan, SurgeKeepsARunningPodOnEveryNode) {
  Daemon daemon("{type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}");
  for (const char* name : {"a", "b", "c"}) daemon.add_node(name);
  daemon.settle();
  daemon.change_image("two");
  for (int i = 0; i < 12; ++i) {
    daemon.step();
    EXPECT_LE(daemon.pods().size(), 4u);
    std::set<std::string> serving;
    for (const auto& [name, pod] : daemon.pods()) {
      if (pod.at("status/phase").as_string() == "Running")
        serving.insert(pod.at("spec/nodeName").as_string());
    }
    EXPECT_EQ(serving.size(), 3u);
    daemon.run_pods();
  }
  EXPECT_EQ(daemon.images(), (Images{{"a", "two"}, {"b", "two"}, {"c", "two"}}));
}

TEST(DaemonSetPlan, OnDeleteReplacesPodsOnlyAfterDeletion) {
  Daemon daemon("{type: OnDelete}");
  daemon.add_node("a");
  daemon.add_node("b");
  daemon.settle();
  daemon.change_image("two");
  daemon.settle();
  EXPECT_EQ(daemon.images(), (Images{{"a", "one"}, {"b", "one"}}));
  EXPECT_EQ(daemon.status("updatedNumberScheduled"), 0);
  std::erase_if(daemon.pods(), [](const auto& item) {
    return item.second.at("spec/nodeName").as_string() == "a";
  });
  daemon.settle();
  EXPECT_EQ(daemon.images(), (Images{{"a", "two"}, {"b", "one"}}));
}

TEST(DaemonSetPlan, FailedPodIsReplacedAfterTenSeconds) {
  Daemon daemon;
  daemon.add_node("a");
  daemon.settle();
  daemon.pods().begin()->second.set("status", Json::object({{"phase", "Failed"}}));
  const DaemonSetPlan early = daemon.step();
  EXPECT_TRUE(early.changes.remove.empty() && early.changes.create.empty());
  EXPECT_EQ(early.again, Duration(10s));
  daemon.pass(10s);
  daemon.settle();
  EXPECT_EQ(daemon.status("numberReady"), 1);
}

}  // namespace daemon_set_test
}  // namespace varda::cluster
