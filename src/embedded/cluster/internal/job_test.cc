// Jobs, simulated without an API server: a Job and its pods over rounds.

#include "cluster/internal/job.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "codec/yaml.h"

namespace varda::cluster {
namespace {

using namespace std::chrono_literals;

class JobRun {
 public:
  explicit JobRun(const std::string& spec)
      : json_(*codec::parse_yaml(
            "{apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: default, uid: u}, "
            "spec: {" +
            spec +
            ", template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}")) {}

  Json& spec() { return json_["spec"]; }
  JobPlan plan() const { return plan_job(*api::Job::from_json(json_), pods(), now_, 10s); }
  /// One reconcile, cut off after `steps` writes: a controller may be killed at any point.
  JobPlan step(int steps = 1 << 20) {
    JobPlan plan = this->plan();
    if (steps-- <= 0) return plan;
    json_.set("status", plan.status);
    for (const auto& list : {plan.count, plan.withdraw}) {
      for (const PodPtr& pod : list) {
        if (steps-- <= 0) return plan;
        release(pod->metadata.name);
      }
    }
    for (const auto& list : {plan.changes.remove, plan.withdraw}) {
      for (const PodPtr& pod : list) {
        if (steps-- <= 0) return plan;
        remove(pod->metadata.name);
      }
    }
    for (Json pod : plan.changes.create) {
      if (steps-- <= 0) return plan;
      const std::string name =
          std::as_const(pod)["metadata"]["generateName"].as_string() + std::to_string(next_++);
      pod["metadata"].set("name", name);
      pod["metadata"].set("uid", "uid-" + name);
      pod["metadata"].set("creationTimestamp", meta::format_time(now_));
      pods_.emplace(name, std::move(pod));
    }
    return plan;
  }
  void settle() {
    for (int i = 0; i < 6; ++i) step();
  }
  void end(const std::string& name, const char* phase) {
    pods_.at(name).set(
        "status",
        Json::object(
            {{"phase", phase},
             {"containerStatuses",
              Json::array({Json::object(
                  {{"name", "c"},
                   {"state", Json::object({{"terminated",
                                            Json::object({{"finishedAt",
                                                           meta::format_time(now_)}})}})}})})}}));
  }
  void end_all(const char* phase) {
    for (const auto& name : running()) end(name, phase);
  }
  /// A client deletes a pod; its runner ends it at once.
  void remove(const std::string& name) {
    Json& pod = pods_.at(name);
    if (std::as_const(pod)["metadata"]["finalizers"].empty()) {
      pods_.erase(name);
    } else {
      pod["metadata"].set("deletionTimestamp", meta::format_time(now_));
      if (std::as_const(pod).at("status/phase").as_string().empty()) end(name, "Failed");
    }
  }
  std::vector<std::string> running() const {
    std::vector<std::string> out;
    for (const auto& [name, pod] : pods_) {
      if (pod.at("status/phase").as_string().empty()) out.push_back(name);
    }
    return out;
  }
  PodList pods() const {
    PodList out;
    for (const auto& [name, pod] : pods_)
      out.push_back(std::make_shared<const api::Pod>(*api::Pod::from_json(pod)));
    return out;
  }
  const Json& pod(const std::string& name) const { return pods_.at(name); }
  void set_restarts(const std::string& name, int count) {
    pods_.at(name).make("status").set(
        "containerStatuses",
        Json::array(
            {Json::object({{"name", "c"}, {"restartCount", count}, {"state", Json::object()}})}));
  }
  std::string reason(std::string_view type) const {
    for (const Json& condition : json_.at("status/conditions").as_array()) {
      if (condition["type"].as_string() == type)
        return condition["status"].as_string() + " " + condition["reason"].as_string();
    }
    return "";
  }
  std::int64_t status(const char* field) const { return json_["status"][field].as_integer(); }
  std::string text(const char* field) const { return json_["status"][field].as_string(); }
  void pass(std::chrono::seconds time) { now_ += time; }
  void expect_no_changes() {
    const JobPlan idle = plan();
    EXPECT_EQ(idle.status, std::as_const(json_)["status"]) << codec::write_json(idle.status);
    EXPECT_TRUE(idle.count.empty() && idle.withdraw.empty() && idle.changes.create.empty() &&
                idle.changes.remove.empty());
  }

 private:
  void release(const std::string& name) {
    Json& pod = pods_.at(name);
    pod["metadata"].erase("finalizers");
    if (std::as_const(pod)["metadata"].contains("deletionTimestamp")) pods_.erase(name);
  }

  Json json_;
  std::map<std::string, Json> pods_;
  WallTime now_ = *meta::parse_time("2024-05-01T10:00:00Z");
  int next_ = 0;
};

TEST(JobPlan, JobRunsParallelPodsUntilCompletions) {
  JobRun run("completions: 5, parallelism: 2");
  int rounds = 0;
  for (; run.reason("Complete").empty() && rounds < 20; ++rounds) {
    run.settle();
    EXPECT_LE(run.running().size(), 2u);
    run.end_all("Succeeded");
  }
  run.settle();
  EXPECT_EQ(run.reason("Complete"), "True CompletionsReached");
  EXPECT_EQ(run.reason("SuccessCriteriaMet"), "True CompletionsReached");
  EXPECT_EQ(run.status("succeeded"), 5);
  EXPECT_EQ(run.status("active"), 0);
  EXPECT_NE(run.text("completionTime"), "");
  EXPECT_EQ(run.pods().size(), 5u);
  run.expect_no_changes();
}

TEST(JobPlan, EveryPodCountsOnceDespiteInterruptionAndDeletion) {
  for (int cut = 0; cut < 8; ++cut) {
    SCOPED_TRACE(cut);
    JobRun run("completions: 3, parallelism: 3, backoffLimit: 5");
    run.settle();
    const auto names = run.running();
    ASSERT_EQ(names.size(), 3u);
    run.end(names[0], "Succeeded");
    run.end(names[1], "Succeeded");
    run.end(names[2], "Failed");
    run.step(cut);
    for (const PodPtr& pod : run.pods()) {
      if (finished(*pod)) run.remove(pod->metadata.name);
    }
    run.settle();
    EXPECT_EQ(run.status("succeeded"), 2);
    EXPECT_EQ(run.status("failed"), 1);
    run.pass(10s);
    run.settle();
    EXPECT_EQ(run.running().size(), 1u);
  }
}

TEST(JobPlan, FailuresBackOffUntilTheLimitFailsTheJob) {
  JobRun run("backoffLimit: 2");
  for (const auto wait : {10s, 20s}) {
    run.settle();
    run.end_all("Failed");
    run.settle();
    EXPECT_TRUE(run.running().empty());
    EXPECT_EQ(run.plan().again, Duration(wait));
    run.pass(wait);
    run.settle();
    EXPECT_EQ(run.running().size(), 1u);
  }
  run.end_all("Failed");
  run.settle();
  EXPECT_EQ(run.reason("Failed"), "True BackoffLimitExceeded");
  EXPECT_EQ(run.reason("FailureTarget"), "True BackoffLimitExceeded");
  EXPECT_EQ(run.status("failed"), 3);
  EXPECT_TRUE(run.running().empty());
  run.expect_no_changes();
}

TEST(JobPlan, ContainerRestartsCountTowardsBackoffLimit) {
  JobRun run("backoffLimit: 2");
  run.spec()["template"]["spec"].set("restartPolicy", "OnFailure");
  run.settle();
  run.set_restarts(run.running().front(), 1);
  run.settle();
  EXPECT_EQ(run.running().size(), 1u);
  run.set_restarts(run.running().front(), 2);
  run.settle();
  EXPECT_EQ(run.reason("Failed"), "True BackoffLimitExceeded");
}

TEST(JobPlan, DeadlineEndsRunningPods) {
  JobRun run("activeDeadlineSeconds: 30");
  run.settle();
  EXPECT_EQ(run.plan().again, Duration(30s));
  run.pass(30s);
  run.settle();
  EXPECT_EQ(run.reason("Failed"), "True DeadlineExceeded");
  EXPECT_EQ(run.status("failed"), 1);
  EXPECT_TRUE(run.running().empty());
  run.expect_no_changes();
}

TEST(JobPlan, SuspendedJobHasNoPodsAndNoFailures) {
  JobRun run("parallelism: 2, completions: 2, activeDeadlineSeconds: 30");
  run.settle();
  run.spec().set("suspend", true);
  run.settle();
  EXPECT_EQ(run.reason("Suspended"), "True JobSuspended");
  EXPECT_TRUE(run.pods().empty());
  EXPECT_EQ(run.status("failed"), 0);
  EXPECT_EQ(run.text("startTime"), "");
  run.pass(3600s);
  run.expect_no_changes();
  run.spec().set("suspend", false);
  run.settle();
  EXPECT_EQ(run.reason("Suspended"), "False JobResumed");
  EXPECT_EQ(run.running().size(), 2u);
  EXPECT_EQ(run.reason("Failed"), "");
}

TEST(JobPlan, EveryIndexRunsUntilItSucceeds) {
  JobRun run("completions: 4, parallelism: 2, completionMode: Indexed");
  run.settle();
  auto names = run.running();
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0].substr(0, 4), "j-0-");
  EXPECT_EQ(names[1].substr(0, 4), "j-1-");
  const Json& pod = run.pod(names[1]);
  EXPECT_EQ(pod["metadata"]["annotations"][kJobIndex].as_string(), "1");
  EXPECT_EQ(pod.at("spec/hostname").as_string(), "j-1");
  EXPECT_EQ(pod.at("spec/containers/0/env/0/name").as_string(), "JOB_COMPLETION_INDEX");
  run.end(names[0], "Failed");
  run.end(names[1], "Succeeded");
  run.settle();
  EXPECT_EQ(run.text("completedIndexes"), "1");
  run.pass(10s);
  run.settle();
  names = run.running();
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0].substr(0, 4), "j-0-");
  EXPECT_EQ(names[1].substr(0, 4), "j-2-");
  for (int i = 0; i < 3; ++i) {
    run.end_all("Succeeded");
    run.settle();
  }
  EXPECT_EQ(run.text("completedIndexes"), "0-3");
  EXPECT_EQ(run.status("succeeded"), 4);
  EXPECT_EQ(run.reason("Complete"), "True CompletionsReached");
}

TEST(JobPlan, OneSuccessWithoutCompletionsLetsOthersFinish) {
  JobRun run("parallelism: 3");
  run.settle();
  run.end(run.running()[0], "Succeeded");
  run.settle();
  EXPECT_EQ(run.running().size(), 2u);
  EXPECT_EQ(run.reason("Complete"), "");
  run.end_all("Succeeded");
  run.settle();
  EXPECT_EQ(run.reason("Complete"), "True CompletionsReached");
  EXPECT_EQ(run.status("succeeded"), 3);
}

TEST(JobPlan, LowerParallelismRemovesPodsWithoutFailure) {
  JobRun run("parallelism: 4, completions: 8");
  run.settle();
  run.spec().set("parallelism", 1);
  run.settle();
  EXPECT_EQ(run.running().size(), 1u);
  EXPECT_EQ(run.status("failed"), 0);
}

TEST(JobPlan, FinishedJobExpiresAfterItsTtl) {
  JobRun run("completions: 1, ttlSecondsAfterFinished: 60");
  run.settle();
  run.end_all("Succeeded");
  run.settle();
  EXPECT_FALSE(run.plan().expired);
  EXPECT_EQ(run.plan().again, Duration(60s));
  run.pass(60s);
  EXPECT_TRUE(run.plan().expired);
}

TEST(JobPlan, UnsupportedFieldFailsTheJob) {
  for (const char* field :
       {"podFailurePolicy: {rules: []}", "successPolicy: {rules: []}", "backoffLimitPerIndex: 1"}) {
    JobRun run(field);
    run.settle();
    EXPECT_EQ(run.reason("Failed"), "True Unsupported");
    EXPECT_TRUE(run.pods().empty());
  }
}

TEST(JobIndexes, IndexTextSurvivesRoundTrip) {
  for (const char* text : {"", "0", "0,1", "0-2", "1,3-5,7,8,10-12"})
    EXPECT_EQ(write_indexes(parse_indexes(text)), text);
  EXPECT_EQ(parse_indexes("2-4,9"), (std::set<std::int64_t>{2, 3, 4, 9}));
  for (const char* bad : {"x", "1-", "0-99999999999", "-"})
    EXPECT_LE(parse_indexes(bad).size(), 1u) << bad;
}

}  // namespace
}  // namespace varda::cluster
