// When the work list of a node is written, by a clock that the test owns.
#include "controllers/edgenode/reconciler.h"

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "api/ai/inference_model.h"
#include "api/core/node.h"
#include "api/core/pod.h"
#include "api/edgeai/dataset.h"
#include "api/edgeai/model.h"
#include "api/kind.h"
#include "apiserver/testing/in_memory.h"
#include "codec/yaml.h"
#include "kube/client.h"
#include "runtime/manager.h"

namespace varda::controllers {
namespace {

using codec::Json;
using std::chrono::milliseconds;

constexpr const char* kEdgeNode = "/apis/edgeai.io/v1alpha1/edgenodes/edge0";

class HandClock final : public Clock {
 public:
  SteadyTime now() const override { return SteadyTime(now_.load()); }
  WallTime wall() const override { return WallTime(); }
  void advance(Duration by) { now_ = now_.load() + by; }

 private:
  std::atomic<Duration> now_{std::chrono::hours(1)};
};

/// A kind whose jobs have one worker each on every node.
class FewJobs final : public JobWork {
 public:
  std::string kind() const override { return "Job"; }
  void watches(runtime::Watches<api::EdgeNode>& /*w*/) const override {}
  std::vector<NodeWork> work_for(const api::EdgeNode& /*node*/, const runtime::Caches& /*caches*/) const override {
    std::vector<NodeWork> all;
    for (const std::string& name : names) {
      NodeWork& work = all.emplace_back();
      work.since = "2024-05-01T10:00:00Z";
      api::EdgeWorker& worker = work.workers.emplace_back();
      worker.key = "default/" + name;
      worker.uid = "uid-" + name;
      worker.owner = "Job/" + name;
      worker.assignment = Json::object({{"say", "hello"}});
      api::EdgeModel& model = work.models.emplace_back();
      model.key = "default/" + name + ".edge";
    }
    return all;
  }
  std::vector<std::string> names;
};

class EdgeNodeWrites : public testing::Test {
 protected:
  EdgeNodeWrites()
      : client_(api_.transport(), {}), manager_(client_, {}), reconciler_(manager_.caches(), clock_, builtin_servers(), {&jobs_}) {
    for (const Json& crd : api::crds()) api_.install_crds(codec::write_yaml(crd));
    post("/api/v1/nodes", R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"edge0","labels":
                              {"kubernetes.io/hostname":"edge0","node-role.kubernetes.io/edge":""}}})");
    post("/apis/edgeai.io/v1alpha1/edgenodes",
         R"({"apiVersion":"edgeai.io/v1alpha1","kind":"EdgeNode","metadata":{"name":"edge0"},"spec":{}})");
    manager_.watch<api::EdgeNode>();
    manager_.watch<api::Node>();
    manager_.watch<api::InferenceModel>();
    manager_.watch<api::Pod>();
    manager_.watch<api::Dataset>();
    manager_.watch<api::SednaDataset>();
    manager_.watch<api::Model>();
    manager_.watch<api::SednaModel>();
    thread_ = std::jthread([this](const std::stop_token& stop) { (void)manager_.run(Context(stop)); });
    wait_for([this] { return manager_.caches().synced(); });
  }

  static void wait_for(const std::function<bool()>& holds) {
    const Context limit = Context::background().with_timeout(std::chrono::seconds(60));
    while (!holds() && limit.sleep_for(milliseconds(1)).ok()) {
    }
    ASSERT_TRUE(holds());
  }
  void post(const std::string& collection, const std::string& object) {
    const auto reply = api_.post(collection, codec::parse_json(object).value());
    ASSERT_EQ(reply.status, 201) << reply.text;
  }
  /// Returns when the controllers' copies have it.
  void add_model(const std::string& name) {
    const auto models = manager_.caches().of<api::InferenceModel>();
    const std::size_t before = models.size();
    post("/apis/ai.kubeedge.io/v1alpha1/namespaces/default/inferencemodels",
         R"({"apiVersion":"ai.kubeedge.io/v1alpha1","kind":"InferenceModel","metadata":{"name":")" + name +
             R"("},"spec":{"modelName":")" + name +
             R"(","deployToLayer":"edge","frameworkType":"onnx","nodeName":"edge0","targetVersion":"1","manifest":
                [{"version":"1","downloadURL":"http://f/1.tgz","sha256sum":")" +
             std::string(64, '1') + R"("}]}})");
    wait_for([&] { return models.size() == before + 1; });
  }
  std::optional<Duration> reconcile() {
    const auto node = manager_.caches().of<api::EdgeNode>().get({"", "edge0"});
    const auto action = reconciler_.reconcile(Context::background(), *node, manager_.writer());
    EXPECT_TRUE(action.ok());
    return action->delay();
  }
  /// Owners and keys of the workers that the object has.
  std::vector<std::string> workers() {
    std::vector<std::string> out;
    for (const Json& worker : api_.get(kEdgeNode).body.at("spec/workers").as_array())
      out.push_back(worker["owner"].as_string() + " " + worker["key"].as_string());
    return out;
  }
  /// As a person would; returns when the controllers' copy has it.
  void write_workers(const std::string& workers) {
    const auto reply = api_.merge_patch(kEdgeNode, codec::parse_yaml("{spec: {workers: " + workers + "}}").value());
    ASSERT_EQ(reply.status, 200) << reply.text;
    const std::string version = reply.body.at("metadata/resourceVersion").as_string();
    wait_for([&] { return manager_.caches().of<api::EdgeNode>().get({"", "edge0"})->metadata.resource_version == version; });
  }
  std::size_t written() { return api_.get(kEdgeNode).body.at("spec/models").size(); }

  HandClock clock_;
  FewJobs jobs_;
  apiserver::InMemoryApiServer api_;
  kube::Client client_;
  runtime::Manager manager_;
  EdgeNodeReconciler reconciler_;
  std::jthread thread_;
};

TEST_F(EdgeNodeWrites, AChangeIsWrittenAtOnceAndWhatComesSoonAfterTogether) {
  add_model("a");
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_EQ(written(), 1u);
  add_model("b");
  const std::optional<Duration> pause = reconcile();
  add_model("c");
  ASSERT_TRUE(pause);
  EXPECT_GT(*pause, Duration::zero());
  EXPECT_EQ(reconcile(), pause);
  EXPECT_EQ(written(), 1u);
  clock_.advance(*pause);
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_EQ(written(), 3u);
  add_model("d");
  EXPECT_EQ(reconcile(), 3 * *pause) << "a list of three is written a third as often";
}

TEST_F(EdgeNodeWrites, WhereNothingWasWrittenNothingWaits) {
  add_model("a");
  EXPECT_EQ(reconcile(), std::nullopt);
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(reconcile(), std::nullopt) << "nothing to write";
  add_model("b");
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_EQ(written(), 2u);
}

TEST_F(EdgeNodeWrites, ANodeThatComesAgainIsWrittenAtOnce) {
  add_model("a");
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_TRUE(reconciler_.gone(Context::background(), {"", "edge0"}, manager_.writer()).ok());
  add_model("b");
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_EQ(written(), 2u);
}

TEST_F(EdgeNodeWrites, WorkersOfJobsComeAndGoWithThem) {
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_TRUE(api_.get(kEdgeNode).body.at("spec/workers").is_null()) << "where there are none nothing is said";
  jobs_.names = {"b", "a"};
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_EQ(workers(), (std::vector<std::string>{"Job/a default/a", "Job/b default/b"}));
  EXPECT_EQ(written(), 2u) << "and their models";
  const std::string version = api_.get(kEdgeNode).body.at("metadata/resourceVersion").as_string();
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_EQ(api_.get(kEdgeNode).body.at("metadata/resourceVersion").as_string(), version) << "at rest nothing is written";
  jobs_.names.clear();
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_TRUE(workers().empty());
  EXPECT_EQ(written(), 0u);
}

TEST_F(EdgeNodeWrites, WorkersThatPeopleWroteStayBesideThoseOfJobs) {
  write_workers(
      "[{key: default/mine, uid: u, owner: TrainingModel/mine}, {key: default/nobodys, uid: u}, "
      "{key: default/left, uid: u, owner: Job/left}]");
  jobs_.names = {"a"};
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_EQ(workers(), (std::vector<std::string>{"Job/a default/a", "TrainingModel/mine default/mine", " default/nobodys"}))
      << "what was left of a job that is gone is not people's";
}

TEST_F(EdgeNodeWrites, OfTooManyWorkersTheOldestStay) {
  for (int i = 0; i < 70; ++i) jobs_.names.push_back("w" + std::to_string(100 + i));
  write_workers("[{key: default/mine, uid: u, owner: TrainingModel/mine}]");
  (void)reconcile();
  EXPECT_EQ(workers().size(), 64u);
  EXPECT_EQ(workers().front(), "Job/w100 default/w100");
}

}  // namespace
}  // namespace varda::controllers
