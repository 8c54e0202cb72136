// Roll-outs, simulated without an API server: Deployment, ReplicaSets, pods and the runner over
// rounds.

#include "cluster/internal/deployment.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <set>

#include "cluster/internal/replica_set.h"
#include "cluster/internal/rollout.h"
#include "codec/yaml.h"

namespace varda::cluster {
namespace deployment_test {

using namespace std::chrono_literals;

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

Json owner(const Json& object) {
  return Json::array({Json::object({{"apiVersion", object["apiVersion"]},
                                    {"kind", object["kind"]},
                                    {"name", object["metadata"]["name"]},
                                    {"uid", object["metadata"]["uid"]},
                                    {"controller", true}})});
}

class Rollout {
 public:
  explicit Rollout(const std::string& text = kDeployment) : json_(*codec::parse_yaml(text)) {}

  Json& spec() { return json_["spec"]; }
  const Json& deployment() const { return json_; }
  void changed() {
    json_["metadata"].set("generation",
                          std::as_const(json_)["metadata"]["generation"].as_integer() + 1);
  }
  void change_image(const std::string& image) {
    spec()["template"]["spec"]["containers"].array_items()[0].set("image", image);
    changed();
  }
  void scale(int replicas) {
    spec().set("replicas", replicas);
    changed();
  }
  void pause(bool paused) {
    spec().set("paused", paused);
    changed();
  }
  void annotate(const std::string& name, const std::string& value) {
    json_.make("metadata/annotations").set(name, value);
    changed();
  }

  DeploymentPlan plan() const {
    DeploymentWorld world;
    std::set<std::string> uids;
    for (const auto& [name, set] : sets_) {
      world.sets.push_back(
          std::make_shared<const api::ReplicaSet>(*api::ReplicaSet::from_json(set)));
      uids.insert(world.sets.back()->metadata.uid);
    }
    std::stable_sort(world.sets.begin(), world.sets.end(), [](const auto& a, const auto& b) {
      return a->metadata.creation_timestamp < b->metadata.creation_timestamp;
    });
    for (const PodPtr& pod : pods()) {
      const meta::OwnerReference* controller = pod->metadata.controller();
      if (controller && controller->uid == "u1") world.own.push_back(pod);
      if (controller && uids.contains(controller->uid)) world.of_sets.push_back(pod);
    }
    return plan_deployment(*api::Deployment::from_json(json_), world, now_);
  }
  /// One reconcile of the Deployment.
  DeploymentPlan step() {
    DeploymentPlan plan = this->plan();
    for (const auto& change : plan.change) {
      Json& set = sets_.at(change.set->metadata.name);
      set["spec"].set("replicas", change.replicas);
      set["spec"].set("minReadySeconds", change.min_ready_seconds);
      for (const auto& [name, value] : change.annotations)
        set.make("metadata/annotations").set(name, value);
      set["metadata"].set("generation",
                          std::as_const(set)["metadata"]["generation"].as_integer() + 1);
    }
    for (const auto& pod : plan.remove) end(pod->metadata.name);
    for (const auto& set : plan.drop) sets_.erase(set->metadata.name);
    if (plan.create) {
      Json set = *plan.create;
      const std::string name = std::as_const(set)["metadata"]["name"].as_string();
      EXPECT_FALSE(sets_.contains(name));
      set["metadata"].set("uid", "rs-" + name);
      set["metadata"].set("generation", 1);
      set["metadata"].set("creationTimestamp",
                          meta::format_time(now_ + std::chrono::seconds(next_++)));
      set["metadata"].set("ownerReferences", owner(json_));
      sets_.emplace(name, std::move(set));
    }
    reported_.insert(reported_.end(), plan.events.begin(), plan.events.end());
    json_.set("status", plan.status);
    if (!plan.revision.empty()) json_.make("metadata/annotations").set(kRevision, plan.revision);
    return plan;
  }
  /// One reconcile of each ReplicaSet.
  void step_sets() {
    for (auto& [name, set] : sets_) step_set(set);
  }
  ReplicaSetPlan step_set(Json& set) {
    const auto typed = *api::ReplicaSet::from_json(set);
    ReplicaSetPlan plan = plan_replica_set(typed, pods(), now_, 10s);
    EXPECT_EQ(plan.problem, "");
    for (const auto& adoption : plan.adopt)
      pods_.at(adoption.pod->metadata.name)["metadata"].set("ownerReferences", owner(set));
    for (const auto& pod : plan.release)
      pods_.at(pod->metadata.name)["metadata"].erase("ownerReferences");
    for (const auto& pod : plan.changes.remove) end(pod->metadata.name);
    for (Json pod : plan.changes.create) {
      pod["metadata"].set("ownerReferences", owner(set));
      add_pod(std::move(pod));
    }
    set.set("status", plan.status);
    return plan;
  }
  void add_pod(Json pod) {
    const std::string name =
        std::as_const(pod)["metadata"]["generateName"].as_string() + std::to_string(next_++);
    pod["metadata"].set("name", name);
    pod["metadata"].set("creationTimestamp", meta::format_time(now_));
    pods_.emplace(name, std::move(pod));
  }
  /// A pod as Deployments created it before ReplicaSets existed.
  void add_legacy_pod(const std::string& image) {
    Json pod_template = std::as_const(json_)["spec"]["template"];
    pod_template["spec"]["containers"].array_items()[0].set("image", image);
    Json pod = pod_of_template(pod_template, "web-x-", "default");
    pod["metadata"]["labels"].set(kTemplateHashLabel, template_hash(pod_template));
    pod["metadata"].set("ownerReferences", owner(json_));
    add_pod(std::move(pod));
  }
  void set_ready(const std::string& name, const std::string& ready = "True") {
    pods_.at(name)["spec"].set("nodeName", "n");
    pods_.at(name).set(
        "status",
        Json::object({{"phase", "Running"},
                      {"conditions", Json::array({Json::object(
                                         {{"type", "Ready"},
                                          {"status", ready},
                                          {"lastTransitionTime", meta::format_time(now_)}})})}}));
  }
  void fail(const std::string& name) {
    pods_.at(name).set("status", Json::object({{"phase", "Failed"}}));
  }
  void all_ready() {
    for (const auto& name : names()) {
      if (std::as_const(pods_.at(name)).at("status/phase").as_string().empty()) set_ready(name);
    }
  }
  /// From now on deleted pods terminate only with drop_ended(), as real ones take time to.
  void let_ended_pods_linger() { linger_ = true; }
  void drop_ended() {
    std::erase_if(pods_, [](const auto& item) {
      return item.second["metadata"].contains("deletionTimestamp");
    });
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    for (const auto& [name, pod] : pods_) out.push_back(name);
    return out;
  }
  std::size_t of_image(const std::string& image) const {
    return static_cast<std::size_t>(
        std::count_if(pods_.begin(), pods_.end(), [&](const auto& item) {
          return item.second["spec"]["containers"].as_array()[0]["image"].as_string() == image;
        }));
  }
  std::size_t ready() const {
    std::size_t count = 0;
    for (const auto& [name, pod] : pods_) count += api::Pod::from_json(pod)->ready();
    return count;
  }
  PodList pods() const {
    PodList out;
    for (const auto& [name, pod] : pods_)
      out.push_back(std::make_shared<const api::Pod>(*api::Pod::from_json(pod)));
    return out;
  }
  std::map<std::string, Json>& sets() { return sets_; }
  Json& set_of_image(const std::string& image) {
    for (auto& [name, set] : sets_) {
      if (std::as_const(set).at("spec/template/spec/containers/0/image").as_string() == image)
        return set;
    }
    ADD_FAILURE() << "no ReplicaSet of " << image;
    return sets_.begin()->second;
  }
  std::string revision_of(const std::string& image) {
    return std::as_const(set_of_image(image))["metadata"]["annotations"][kRevision].as_string();
  }
  std::int64_t replicas_of(const std::string& image) {
    return std::as_const(set_of_image(image)).at("spec/replicas").as_integer();
  }
  const std::vector<std::string>& events() const { return reported_; }
  void pass(std::chrono::seconds time) { now_ += time; }
  void drop(const std::string& name) { pods_.erase(name); }
  std::string reason(const char* type) const {
    for (const Json& condition : json_.at("status/conditions").as_array()) {
      if (condition["type"].as_string() == type)
        return condition["status"].as_string() + " " + condition["reason"].as_string();
    }
    return "";
  }
  std::int64_t status(const char* field) const { return json_["status"][field].as_integer(); }
  void expect_no_changes() {
    const Json before = std::as_const(json_)["status"];
    const DeploymentPlan plan = this->plan();
    EXPECT_FALSE(plan.create);
    EXPECT_TRUE(plan.change.empty());
    EXPECT_TRUE(plan.remove.empty());
    EXPECT_TRUE(plan.drop.empty());
    EXPECT_EQ(plan.status, before) << codec::write_json(plan.status) << codec::write_json(before);
    for (auto& [name, set] : sets_) {
      const Json status = std::as_const(set)["status"];
      const ReplicaSetPlan idle = step_set(set);
      EXPECT_TRUE(idle.changes.create.empty() && idle.changes.remove.empty() &&
                  idle.adopt.empty() && idle.release.empty());
      EXPECT_EQ(idle.status, status);
    }
  }
  void round() {
    step();
    step_sets();
    all_ready();
    step_sets();
  }
  void run() {
    for (int i = 0; i < 30; ++i) round();
  }

 private:
  void end(const std::string& name) {
    if (linger_) {
      pods_.at(name)["metadata"].set("deletionTimestamp", meta::format_time(now_));
    } else {
      pods_.erase(name);
    }
  }

  Json json_;
  std::map<std::string, Json> sets_, pods_;
  WallTime now_ = *meta::parse_time("2024-05-01T10:00:00Z");
  std::vector<std::string> reported_;
  int next_ = 0;
  bool linger_ = false;
};

TEST(DeploymentPlan, DeploymentCreatesPodsThroughReplicaSet) {
  Rollout rollout;
  const DeploymentPlan first = rollout.step();
  ASSERT_TRUE(first.create);
  EXPECT_EQ(rollout.reason("Available"), "False MinimumReplicasUnavailable");
  EXPECT_EQ(rollout.reason("Progressing"), "True NewReplicaSetCreated");
  EXPECT_EQ(rollout.status("unavailableReplicas"), 3);
  rollout.step_sets();
  EXPECT_EQ(rollout.names().size(), 3u);
  rollout.step_sets();
  rollout.step();
  EXPECT_EQ(rollout.reason("Progressing"), "True ReplicaSetUpdated");
  rollout.all_ready();
  rollout.step_sets();
  rollout.step();
  EXPECT_EQ(rollout.reason("Available"), "True MinimumReplicasAvailable");
  EXPECT_EQ(rollout.reason("Progressing"), "True NewReplicaSetAvailable");
  EXPECT_EQ(rollout.status("readyReplicas"), 3);
  EXPECT_EQ(rollout.status("observedGeneration"), 2);
  rollout.pass(3600s);
  rollout.expect_no_changes();
}

TEST(DeploymentPlan, ReplicaSetHasTemplateHashAndKubectlAnnotations) {
  Rollout rollout;
  rollout.annotate("kubernetes.io/change-cause", "first");
  rollout.annotate("kubectl.kubernetes.io/last-applied-configuration", "{}");
  rollout.annotate(std::string(runtime::kLastApplied), "{}");
  const DeploymentPlan plan = rollout.plan();
  ASSERT_TRUE(plan.create);
  const Json& set = *plan.create;
  const std::string hash = set.at("metadata/labels/pod-template-hash").as_string();
  EXPECT_EQ(hash.size(), 10u);
  EXPECT_EQ(set.at("metadata/name").as_string(), "web-" + hash);
  EXPECT_EQ(set.at("metadata/labels/app").as_string(), "web");
  EXPECT_EQ(set.at("spec/selector/matchLabels/pod-template-hash").as_string(), hash);
  EXPECT_EQ(set.at("spec/selector/matchLabels/app").as_string(), "web");
  EXPECT_EQ(set.at("spec/template/metadata/labels/pod-template-hash").as_string(), hash);
  EXPECT_EQ(set.at("spec/template/spec/containers/0/image").as_string(), "one");
  EXPECT_EQ(set["metadata"]["annotations"],
            Json::object({{"deployment.kubernetes.io/desired-replicas", "3"},
                          {"deployment.kubernetes.io/max-replicas", "4"},
                          {"deployment.kubernetes.io/revision", "1"},
                          {"kubernetes.io/change-cause", "first"}}))
      << codec::write_json(set["metadata"]["annotations"]);
  EXPECT_EQ(plan.revision, "1");
}

TEST(DeploymentPlan, HashDoesNotDependOnTheOrderOfMembers) {
  EXPECT_EQ(template_hash(*codec::parse_yaml("{a: 1, b: {c: [1, {x: 1, y: 2}], d: 2}}")),
            template_hash(*codec::parse_yaml("{b: {d: 2, c: [1, {y: 2, x: 1}]}, a: 1}")));
  EXPECT_NE(template_hash(*codec::parse_yaml("{a: 1}")),
            template_hash(*codec::parse_yaml("{a: 2}")));
}

TEST(DeploymentPlan, RollingUpdateKeepsItsBoundsAtEveryStep) {
  for (const auto& [surge, unavailable] :
       {std::pair<int, int>{1, 0}, {0, 1}, {2, 1}, {0, 0}, {3, 3}}) {
    SCOPED_TRACE(std::to_string(surge) + "/" + std::to_string(unavailable));
    Rollout rollout;
    rollout.spec()["strategy"]["rollingUpdate"] =
        Json::object({{"maxSurge", surge}, {"maxUnavailable", unavailable}});
    rollout.run();
    rollout.change_image("two");
    const auto within = [&, surge = surge, unavailable = unavailable] {
      EXPECT_LE(rollout.names().size(), 3u + static_cast<std::size_t>(surge));
      EXPECT_GE(
          rollout.ready() + static_cast<std::size_t>(std::max(unavailable, surge == 0 ? 1 : 0)),
          3u);
    };
    for (int i = 0; i < 60; ++i) {
      // The Deployment reconciles more often than its ReplicaSets report.
      rollout.step();
      within();
      rollout.step();
      rollout.step_sets();
      within();
      if (i % 3 == 0) rollout.all_ready();
      if (i % 2 == 0) rollout.step_sets();
      within();
    }
    EXPECT_EQ(rollout.of_image("two"), 3u);
    EXPECT_EQ(rollout.of_image("one"), 0u);
    EXPECT_EQ(rollout.reason("Progressing"), "True NewReplicaSetAvailable");
    rollout.expect_no_changes();
  }
}

TEST(DeploymentPlan, PercentagesRoundSurgeUpAndUnavailableDown) {
  Rollout rollout;
  rollout.spec()["strategy"]["rollingUpdate"] =
      Json::object({{"maxSurge", "25%"}, {"maxUnavailable", "25%"}});
  const Bounds bounds = Bounds::of(*api::Deployment::from_json(rollout.deployment()));
  EXPECT_EQ(bounds.surge, 1);
  EXPECT_EQ(bounds.unavailable, 0);
  rollout.spec().set("replicas", 10);
  const Bounds ten = Bounds::of(*api::Deployment::from_json(rollout.deployment()));
  EXPECT_EQ(ten.surge, 3);
  EXPECT_EQ(ten.unavailable, 2);
}

TEST(DeploymentPlan, VersionThatNeverBecomesReadyKeepsOldVersionServing) {
  Rollout rollout;
  rollout.run();
  rollout.change_image("broken");
  for (int i = 0; i < 10; ++i) {
    rollout.step();
    rollout.step_sets();
  }
  EXPECT_EQ(rollout.of_image("one"), 3u);
  EXPECT_EQ(rollout.of_image("broken"), 1u);
  EXPECT_EQ(rollout.reason("Available"), "True MinimumReplicasAvailable");
  const DeploymentPlan waiting = rollout.step();
  ASSERT_TRUE(waiting.again);
  EXPECT_LE(*waiting.again, 600s);
  rollout.pass(601s);
  rollout.step();
  EXPECT_EQ(rollout.reason("Progressing"), "False ProgressDeadlineExceeded");
  rollout.expect_no_changes();
  rollout.change_image("one");  // back
  rollout.run();
  EXPECT_EQ(rollout.of_image("one"), 3u);
  EXPECT_EQ(rollout.of_image("broken"), 0u);
  EXPECT_EQ(rollout.reason("Progressing"), "True NewReplicaSetAvailable");
}

TEST(DeploymentPlan, RollbackReusesReplicaSetWithNewRevision) {
  Rollout rollout;
  rollout.run();
  rollout.change_image("two");
  rollout.run();
  EXPECT_EQ(rollout.revision_of("one"), "1");
  EXPECT_EQ(rollout.revision_of("two"), "2");
  rollout.change_image("one");
  rollout.run();
  EXPECT_EQ(rollout.sets().size(), 2u);
  EXPECT_EQ(rollout.revision_of("one"), "3");
  EXPECT_EQ(std::as_const(rollout.set_of_image(
                "one"))["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"]
                .as_string(),
            "1");
  EXPECT_EQ(rollout.deployment().at("metadata/annotations")[kRevision].as_string(), "3");
  EXPECT_EQ(rollout.replicas_of("one"), 3);
  EXPECT_EQ(rollout.replicas_of("two"), 0);
}

TEST(DeploymentPlan, OldReplicaSetsBeyondLimitAreDeleted) {
  Rollout rollout;
  rollout.spec().set("revisionHistoryLimit", 2);
  for (const char* image : {"one", "two", "three", "four", "five"}) {
    rollout.change_image(image);
    rollout.run();
  }
  EXPECT_EQ(rollout.sets().size(), 3u);
  EXPECT_EQ(rollout.revision_of("three"), "3");
  EXPECT_EQ(rollout.revision_of("five"), "5");
  rollout.spec().set("revisionHistoryLimit", 0);
  rollout.run();
  EXPECT_EQ(rollout.sets().size(), 1u);
}

TEST(DeploymentPlan, RecreateNeverRunsTwoVersionsAtOnce) {
  Rollout rollout;
  rollout.spec().set("strategy", Json::object({{"type", "Recreate"}}));
  rollout.run();
  rollout.let_ended_pods_linger();
  rollout.change_image("two");
  for (int i = 0; i < 10; ++i) rollout.round();
  EXPECT_EQ(rollout.of_image("one"), 3u);
  EXPECT_EQ(rollout.of_image("two"), 0u);
  rollout.drop_ended();
  for (int i = 0; i < 10; ++i) rollout.round();
  EXPECT_EQ(rollout.of_image("one"), 0u);
  EXPECT_EQ(rollout.of_image("two"), 3u);
  EXPECT_EQ(rollout.reason("Progressing"), "True NewReplicaSetAvailable");
}

TEST(DeploymentPlan, PausedDeploymentScalesButRollsOnlyWhenResumed) {
  Rollout rollout;
  rollout.run();
  rollout.pause(true);
  rollout.change_image("two");
  rollout.run();
  EXPECT_EQ(rollout.of_image("two"), 0u);
  EXPECT_EQ(rollout.reason("Progressing"), "Unknown DeploymentPaused");
  rollout.scale(5);
  rollout.run();
  EXPECT_EQ(rollout.of_image("one"), 5u);
  rollout.expect_no_changes();
  rollout.pause(false);
  rollout.step();
  EXPECT_EQ(rollout.reason("Progressing"), "True NewReplicaSetCreated");
  rollout.run();
  EXPECT_EQ(rollout.of_image("two"), 5u);
  EXPECT_EQ(rollout.of_image("one"), 0u);
}

TEST(DeploymentPlan, ScalingDuringRolloutIsProportional) {
  Rollout rollout;
  rollout.spec().set("replicas", 10);
  rollout.spec()["strategy"]["rollingUpdate"] =
      Json::object({{"maxSurge", 3}, {"maxUnavailable", 2}});
  rollout.run();
  rollout.change_image("broken");
  for (int i = 0; i < 10; ++i) {
    rollout.step();
    rollout.step_sets();
  }
  EXPECT_EQ(rollout.replicas_of("one"), 8);
  EXPECT_EQ(rollout.replicas_of("broken"), 5);
  rollout.scale(15);
  rollout.step();
  EXPECT_EQ(rollout.replicas_of("one"), 11);
  EXPECT_EQ(rollout.replicas_of("broken"), 7);
  for (int i = 0; i < 5; ++i) {
    rollout.step_sets();
    rollout.step();
  }
  EXPECT_EQ(rollout.replicas_of("one") + rollout.replicas_of("broken"), 18);
  rollout.scale(0);
  rollout.run();
  EXPECT_TRUE(rollout.names().empty());
  EXPECT_EQ(rollout.reason("Available"), "True MinimumReplicasAvailable");
}

TEST(DeploymentPlan, ScaleDownRemovesUnreadyPodsFirst) {
  Rollout rollout;
  rollout.run();
  const std::string victim = rollout.names()[1];
  rollout.set_ready(victim, "False");
  rollout.scale(2);
  rollout.step();
  rollout.step_sets();
  const auto names = rollout.names();
  EXPECT_EQ(names.size(), 2u);
  EXPECT_EQ(std::count(names.begin(), names.end(), victim), 0);
  EXPECT_EQ(rollout.events().back(),
            "Scaled down replica set " + rollout.sets().begin()->first + " from 3 to 2");
  rollout.scale(0);
  rollout.run();
  EXPECT_TRUE(rollout.names().empty());
  rollout.scale(5);
  rollout.step();
  rollout.step_sets();
  EXPECT_EQ(rollout.names().size(), 5u);
}

TEST(DeploymentPlan, ReplicaSetScaledByHandIsScaledBack) {
  Rollout rollout;
  rollout.run();
  for (const int replicas : {1, 7}) {
    rollout.sets().begin()->second["spec"].set("replicas", replicas);
    rollout.step_sets();
    EXPECT_EQ(rollout.names().size(), static_cast<std::size_t>(replicas));
    rollout.run();
    EXPECT_EQ(rollout.names().size(), 3u);
    rollout.expect_no_changes();
  }
}

TEST(DeploymentPlan, LostPodIsReplacedWithoutRollout) {
  Rollout rollout;
  rollout.run();
  rollout.drop(rollout.names()[0]);
  rollout.step_sets();
  EXPECT_EQ(rollout.names().size(), 3u);
  rollout.step();
  EXPECT_EQ(rollout.reason("Progressing"), "True NewReplicaSetAvailable");
  EXPECT_EQ(rollout.status("unavailableReplicas"), 1);
}

TEST(DeploymentPlan, MinReadySecondsReachTheReplicaSetAndDelayAvailability) {
  Rollout rollout;
  rollout.run();
  rollout.spec().set("minReadySeconds", 30);
  rollout.change_image("two");
  rollout.round();
  rollout.round();
  EXPECT_EQ(rollout.status("readyReplicas"), 4);
  EXPECT_EQ(rollout.status("availableReplicas"), 3);
  EXPECT_EQ(rollout.of_image("one"), 3u);
  for (int i = 0; i < 5; ++i) {
    rollout.pass(30s);
    for (int k = 0; k < 5; ++k) rollout.round();
  }
  EXPECT_EQ(rollout.of_image("two"), 3u);
  EXPECT_EQ(rollout.of_image("one"), 0u);
}

TEST(DeploymentPlan, PodsWithoutReplicaSetAreAdopted) {
  Rollout rollout;
  for (int i = 0; i < 3; ++i) rollout.add_legacy_pod("one");
  rollout.all_ready();
  const auto before = rollout.names();
  rollout.step();
  EXPECT_EQ(rollout.status("availableReplicas"), 3);  // the status shows no gap in availability
  rollout.run();
  EXPECT_EQ(rollout.names(), before);
  for (const PodPtr& pod : rollout.pods())
    EXPECT_EQ(pod->metadata.controller()->kind, "ReplicaSet");
  EXPECT_EQ(rollout.reason("Progressing"), "True NewReplicaSetAvailable");
  rollout.expect_no_changes();
}

TEST(DeploymentPlan, OldPodsWithoutReplicaSetAreRolledOut) {
  Rollout rollout;
  for (const char* image : {"zero", "zero", "one"}) rollout.add_legacy_pod(image);
  rollout.all_ready();
  for (int i = 0; i < 20; ++i) {
    rollout.round();
    EXPECT_GE(rollout.ready(), 3u);
    EXPECT_LE(rollout.names().size(), 4u);
  }
  EXPECT_EQ(rollout.of_image("one"), 3u);
  EXPECT_EQ(rollout.of_image("zero"), 0u);
  rollout.expect_no_changes();
}

TEST(DeploymentPlan, MismatchedSelectorCreatesNothing) {
  Rollout rollout;
  rollout.spec()["selector"] = Json::object({{"matchLabels", Json::object({{"app", "other"}})}});
  const DeploymentPlan plan = rollout.plan();
  EXPECT_FALSE(plan.create);
  EXPECT_NE(plan.problem, "");
}

TEST(ReplicaSetPlan, FailedPodIsReplacedAfterTenSeconds) {
  Rollout rollout;
  rollout.run();
  const std::string victim = rollout.names()[0];
  rollout.fail(victim);
  Json& set = rollout.sets().begin()->second;
  const ReplicaSetPlan early = rollout.step_set(set);
  EXPECT_TRUE(early.changes.remove.empty());
  ASSERT_TRUE(early.again);
  EXPECT_LE(*early.again, 10s);
  rollout.pass(11s);
  const ReplicaSetPlan late = rollout.step_set(set);
  ASSERT_EQ(late.changes.remove.size(), 1u);
  EXPECT_EQ(late.changes.remove[0]->metadata.name, victim);
  EXPECT_EQ(late.changes.create.size(), 1u);
}

TEST(ReplicaSetPlan, PodIsAvailableAfterMinReadySeconds) {
  Rollout rollout;
  rollout.spec().set("minReadySeconds", 30);
  rollout.step();
  rollout.step_sets();
  rollout.all_ready();
  Json& set = rollout.sets().begin()->second;
  const ReplicaSetPlan early = rollout.step_set(set);
  EXPECT_EQ(early.status["readyReplicas"].as_integer(), 3);
  EXPECT_FALSE(early.status.contains("availableReplicas"));
  EXPECT_EQ(early.again, Duration(30s));
  rollout.pass(30s);
  EXPECT_EQ(rollout.step_set(set).status["availableReplicas"].as_integer(), 3);
}

TEST(ReplicaSetPlan, MatchingOrphansAreAdoptedAndMismatchedPodsReleased) {
  Rollout rollout;
  rollout.run();
  Json& set = rollout.sets().begin()->second;
  Json orphan = pod_of_template(std::as_const(set)["spec"]["template"], "stray-", "default");
  rollout.add_pod(std::move(orphan));
  const ReplicaSetPlan plan = rollout.step_set(set);
  ASSERT_EQ(plan.adopt.size(), 1u);
  EXPECT_EQ(plan.changes.remove.size(), 1u);  // one pod too many
  EXPECT_EQ(plan.changes.remove[0]->metadata.name, plan.adopt[0].pod->metadata.name);

  set["spec"]["selector"]["matchLabels"].set("extra", "yes");
  set["spec"]["template"]["metadata"]["labels"].set("extra", "yes");
  const ReplicaSetPlan released = rollout.step_set(set);
  EXPECT_EQ(released.release.size(), 3u);
  EXPECT_EQ(released.changes.create.size(), 3u);
}

TEST(ReplicaSetPlan, DeletionCostDecidesAmongEquals) {
  Rollout rollout;
  rollout.run();
  PodList pods;
  for (const char* cost : {"5", "-3", "0"}) {
    auto pod = std::make_shared<api::Pod>(*rollout.pods()[0]);
    pod->metadata.name = cost;
    pod->metadata.annotations["controller.kubernetes.io/pod-deletion-cost"] = cost;
    pods.push_back(std::move(pod));
  }
  by_dispensability(pods);
  EXPECT_EQ(pods[0]->metadata.name, "-3");
  EXPECT_EQ(pods[2]->metadata.name, "5");
}

}  // namespace deployment_test
}  // namespace varda::cluster
