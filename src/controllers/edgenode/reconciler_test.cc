// Timing of writes of a node's work list, with a manual clock.
#include "controllers/edgenode/reconciler.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
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
#include "base/testing/eventually.h"
#include "codec/yaml.h"
#include "controllers/edgenode/plan.h"
#include "controllers/testing/watch_for.h"
#include "kube/client.h"
#include "runtime/manager.h"

namespace varda::controllers::edgenode {
namespace reconciler_test {

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

/// A kind of jobs with one worker each on every node.
class FewJobs final : public hosting::JobWork {
 public:
  std::string kind() const override { return "Job"; }
  void watches(runtime::Watches<api::EdgeNode>& /*w*/) const override {}
  std::vector<hosting::NodeWork> work_for(const api::EdgeNode& /*node*/,
                                          const runtime::Caches& /*caches*/) const override {
    std::vector<hosting::NodeWork> all;
    for (const std::string& name : names) {
      hosting::NodeWork& work = all.emplace_back();
      work.since = "2024-05-01T10:00:00Z";
      api::EdgeWorker& worker = work.workers.emplace_back();
      worker.key = "default/" + name;
      worker.uid = "uid-" + name;
      worker.owner = "Job/" + name;
      worker.assignment = Json::object({{"say", "hello"}});
      api::EdgeModel& model = work.models.emplace_back();
      model.key = "default/" + name + ".edge";
      if (spoil) spoil(name, work);
    }
    return all;
  }
  std::vector<hosting::PortClaim> claims_on(const std::string& /*node*/,
                                            const runtime::Caches& /*caches*/) const override {
    return {};
  }
  std::vector<std::string> names;
  std::function<void(const std::string& name, hosting::NodeWork& work)> spoil;
};

class EdgeNodeWrites : public ::testing::Test {
 protected:
  EdgeNodeWrites()
      : client_(api_.transport(), {}),
        manager_(client_, {}),
        reconciler_(manager_.caches(), clock_, hosting::builtin_servers(), {&jobs_}) {
    post("/api/v1/nodes", R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"edge0","labels":
                              {"kubernetes.io/hostname":"edge0","node-role.kubernetes.io/edge":""}}})");
    post(
        "/apis/edgeai.io/v1alpha1/edgenodes",
        R"({"apiVersion":"edgeai.io/v1alpha1","kind":"EdgeNode","metadata":{"name":"edge0"},"spec":{}})");
    watch_for<api::EdgeNode>(manager_, reconciler_);
    thread_ =
        std::jthread([this](const std::stop_token& stop) { (void)manager_.run(Context(stop)); });
    wait_for("the caches have synced", [this] { return manager_.caches().synced(); });
  }

  static void wait_for(const std::string& what, const std::function<bool()>& holds) {
    ASSERT_TRUE(eventually(what, holds));
  }
  void post(const std::string& collection, const std::string& object) {
    const auto reply = api_.post(collection, codec::parse_json(object).value());
    ASSERT_EQ(reply.status, 201) << reply.text;
  }
  /// Returns after the controllers' cache has the model.
  void add_model(const std::string& name) {
    const auto models = manager_.caches().of<api::InferenceModel>();
    const std::size_t before = models.size();
    post(
        "/apis/ai.kubeedge.io/v1alpha1/namespaces/default/inferencemodels",
        R"({"apiVersion":"ai.kubeedge.io/v1alpha1","kind":"InferenceModel","metadata":{"name":")" +
            name + R"("},"spec":{"modelName":")" + name +
            R"(","deployToLayer":"edge","frameworkType":"onnx","nodeName":"edge0","targetVersion":"1","manifest":
                [{"version":"1","downloadURL":"http://f/1.tgz","sha256sum":")" +
            std::string(64, '1') + R"("}]}})");
    wait_for("the cache has the model", [&] { return models.size() == before + 1; });
  }
  std::optional<Duration> reconcile() {
    const auto node = manager_.caches().of<api::EdgeNode>().get({"", "edge0"});
    const auto action = reconciler_.reconcile(Context::background(), *node, manager_.writer());
    EXPECT_TRUE(action.ok());
    return action->delay();
  }
  /// Owners and keys of the object's workers.
  std::vector<std::string> workers() {
    std::vector<std::string> out;
    for (const Json& worker : api_.get(kEdgeNode).body.at("spec/workers").as_array())
      out.push_back(worker["owner"].as_string() + " " + worker["key"].as_string());
    return out;
  }
  /// Writes by hand, as an operator would; returns after the controllers' cache has the change.
  void write_workers(const std::string& workers) {
    const auto reply = api_.merge_patch(
        kEdgeNode, codec::parse_yaml("{spec: {workers: " + workers + "}}").value());
    ASSERT_EQ(reply.status, 200) << reply.text;
    const std::string version = reply.body.at("metadata/resourceVersion").as_string();
    wait_for("the cache has the EdgeNode as written", [&] {
      return manager_.caches().of<api::EdgeNode>().get({"", "edge0"})->metadata.resource_version ==
             version;
    });
  }
  std::vector<std::string> left_out_events() {
    std::vector<std::string> out;
    for (const Json& event : api_.get("/api/v1/events").body["items"].as_array()) {
      if (event["reason"].as_string() == "ItemLeftOut") out.push_back(event["message"].as_string());
    }
    return out;
  }
  std::size_t written() { return api_.get(kEdgeNode).body.at("spec/models").size(); }

  HandClock clock_;
  FewJobs jobs_;
  apiserver::InMemoryApiServer api_{{.crds = api::crds()}};
  kube::Client client_;
  runtime::Manager manager_;
  EdgeNodeReconciler reconciler_;
  std::jthread thread_;
};

TEST_F(EdgeNodeWrites, FirstChangeIsWrittenAtOnceAndLaterChangesAreBatched) {
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

TEST_F(EdgeNodeWrites, PauseGrowsWithListSizeAndLastBatch) {
  struct Case {
    std::size_t come;  // models added at once, after the present ones
    int per_item;      // milliseconds of pause before the next change
  };
  std::size_t models = 0;
  const auto versions = [&] {
    return api_.get(kEdgeNode).body.at("metadata/generation").as_integer();
  };
  for (const Case& test : {Case{1, 2}, Case{2, 2}, Case{3, 3}, Case{12, 10}, Case{1, 1}}) {
    SCOPED_TRACE(models);
    for (std::size_t i = 0; i < test.come; ++i) add_model("m" + std::to_string(100 + models++));
    const auto before = versions();
    clock_.advance(std::chrono::seconds(2));
    EXPECT_EQ(reconcile(), std::nullopt);
    EXPECT_EQ(written(), models);
    EXPECT_EQ(versions(), before + 1) << "one write for all of them";
    jobs_.names = {"late" + std::to_string(models)};
    EXPECT_EQ(reconcile(), milliseconds(test.per_item) * models);
    EXPECT_EQ(versions(), before + 1);
    jobs_.names.clear();
  }
}

TEST_F(EdgeNodeWrites, PlanDuringAClockJumpDefersTheNextOneShortly) {
  add_model("a");
  jobs_.names = {"first"};
  jobs_.spoil = [this](const std::string&, hosting::NodeWork&) {
    clock_.advance(std::chrono::seconds(10));
  };
  EXPECT_EQ(reconcile(), std::nullopt);
  jobs_.spoil = nullptr;
  jobs_.names = {"first", "second"};
  const std::optional<Duration> pause = reconcile();
  ASSERT_TRUE(pause);
  EXPECT_LE(*pause, std::chrono::seconds(1));
}

TEST(EdgeNodePlan, LargeJobLeavesRoomForWorkersOfOtherJobs) {
  EdgeNodeWorld world;
  const auto add = [&](const std::string& ns, const std::string& job, const char* since,
                       int replicas) {
    hosting::NodeWork& work = world.jobs.emplace_back();
    work.since = since;
    for (int i = 0; i < replicas; ++i)
      work.workers.emplace_back().key = ns + "/" + job + "-" + std::to_string(100 + i);
  };
  add("a", "many", "2024-05-01T10:00:00Z", 64);
  add("a", "second", "2024-05-02T10:00:00Z", 1);
  add("b", "one", "2024-05-03T10:00:00Z", 3);
  const api::EdgeNodeSpec spec = plan_edge_node({}, world);
  ASSERT_EQ(spec.workers.size(), 64u);
  for (const char* key :
       {"a/second-100", "b/one-100", "b/one-101", "b/one-102", "a/many-100", "a/many-159"})
    EXPECT_NE(spec.find_worker(key), nullptr) << key;
  EXPECT_EQ(spec.find_worker("a/many-160"), nullptr);
}

TEST_F(EdgeNodeWrites, InvalidItemIsOmittedAndReportedAndOthersAreWritten) {
  struct Case {
    const char* what;
    std::function<void(hosting::NodeWork&)> spoil;
    std::vector<std::string> models, workers, reported;
  };
  const std::string long_name(64, 'm');
  const std::vector<std::string> all_models{"default/a", "default/bad.edge", "default/good.edge"},
      models{"default/a", "default/good.edge"};
  const std::vector<std::string> all_workers{"default/bad", "default/good"},
      workers{"default/good"};
  const auto versions = [](hosting::NodeWork& work, std::vector<std::string> names,
                           std::string url) {
    for (std::string& name : names) {
      api::EdgeModelVersion& version = work.models.front().versions.emplace_back();
      version.version = std::move(name);
      version.url = url;
    }
  };
  const std::vector<Case> cases{
      {"nothing", [](hosting::NodeWork&) {}, all_models, all_workers, {}},
      {"name of a model",
       [&](hosting::NodeWork& work) { work.models.front().model_name = long_name; },
       models,
       all_workers,
       {"left out of the work list: default/bad.edge: modelName: Too long: may not be more than 63 "
        "bytes"}},
      {"url",
       [&](hosting::NodeWork& work) {
         versions(work, {"1"}, "http://f/" + std::string(2048, 'u'));
       },
       models,
       all_workers,
       {"url"}},
      {"version",
       [&](hosting::NodeWork& work) { versions(work, {std::string(64, '1')}, "u"); },
       models,
       all_workers,
       {"version"}},
      {"version twice",
       [&](hosting::NodeWork& work) {
         versions(work, {"1", "1"}, "u");
       },
       models,
       all_workers,
       {"Duplicate"}},
      {"key",
       [](hosting::NodeWork& work) { work.workers.front().key = std::string(318, 'k'); },
       all_models,
       workers,
       {"key"}},
      {"key of another",
       [](hosting::NodeWork& work) { work.models.front().key = "default/a"; },
       models,
       all_workers,
       {"another item"}},
      {"key of another, younger",
       [](hosting::NodeWork& work) {
         work.since = "2999-05-01T10:00:00Z";
         work.workers.front().key = "default/good";
       },
       all_models,
       workers,
       {"another item has the same key"}},
  };
  add_model("a");
  jobs_.names = {"bad", "good"};
  std::size_t reported = 0;
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    jobs_.spoil = [&test](const std::string& name, hosting::NodeWork& work) {
      if (name == "bad") test.spoil(work);
    };
    clock_.advance(std::chrono::seconds(1));
    EXPECT_EQ(reconcile(), std::nullopt);
    const Json spec = api_.get(kEdgeNode).body["spec"];
    const auto keys = [&spec](const char* list) {
      std::vector<std::string> out;
      for (const Json& item : spec[list].as_array()) out.push_back(item["key"].as_string());
      return out;
    };
    EXPECT_EQ(keys("models"), test.models);
    EXPECT_EQ(keys("workers"), test.workers);
    reported += test.reported.size();
    for (const std::string& text : test.reported) {
      wait_for("the events are written", [&] { return left_out_events().size() == reported; });
      const auto events = left_out_events();
      EXPECT_TRUE(std::any_of(events.begin(), events.end(), [&](const auto& one) {
        return one.find(text) != std::string::npos;
      })) << text;
    }
  }
}

TEST_F(EdgeNodeWrites, ReconcileWithoutWriteCausesNoPause) {
  add_model("a");
  EXPECT_EQ(reconcile(), std::nullopt);
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(reconcile(), std::nullopt) << "nothing to write";
  add_model("b");
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_EQ(written(), 2u);
}

TEST_F(EdgeNodeWrites, RecreatedNodeIsWrittenAtOnce) {
  add_model("a");
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_TRUE(reconciler_.on_deleted(Context::background(), {"", "edge0"}, manager_.writer()).ok());
  add_model("b");
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_EQ(written(), 2u);
}

TEST_F(EdgeNodeWrites, JobWorkersAppearAndDisappearWithTheJob) {
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_TRUE(api_.get(kEdgeNode).body.at("spec/workers").is_null())
      << "where there are none nothing is said";
  jobs_.names = {"b", "a"};
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_EQ(workers(), (std::vector<std::string>{"Job/a default/a", "Job/b default/b"}));
  EXPECT_EQ(written(), 2u) << "and their models";
  const std::string version = api_.get(kEdgeNode).body.at("metadata/resourceVersion").as_string();
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_EQ(api_.get(kEdgeNode).body.at("metadata/resourceVersion").as_string(), version)
      << "at rest nothing is written";
  jobs_.names.clear();
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_TRUE(workers().empty());
  EXPECT_EQ(written(), 0u);
}

TEST_F(EdgeNodeWrites, ManuallyWrittenWorkersAreKept) {
  write_workers(
      "[{key: default/mine, uid: u, owner: TrainingModel/mine}, {key: default/nobodys, uid: u}, "
      "{key: default/left, uid: u, owner: Job/left}]");
  jobs_.names = {"a"};
  EXPECT_EQ(reconcile(), std::nullopt);
  EXPECT_EQ(workers(),
            (std::vector<std::string>{"Job/a default/a", "TrainingModel/mine default/mine",
                                      " default/nobodys"}))
      << "what was left of a job that is gone is not people's";
}

TEST_F(EdgeNodeWrites, ExcessWorkersAreLeftOut) {
  for (int i = 0; i < 70; ++i) jobs_.names.push_back("w" + std::to_string(100 + i));
  write_workers("[{key: default/mine, uid: u, owner: TrainingModel/mine}]");
  (void)reconcile();
  EXPECT_EQ(workers().size(), 64u);
  EXPECT_EQ(workers().front(), "Job/w100 default/w100");
}

}  // namespace reconciler_test
}  // namespace varda::controllers::edgenode
