// Core over the real API server in memory, with scripted components. The test steps all tasks but
// the watch, which has a thread.
#include "agent/core/core.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <thread>

#include "api/kind.h"
#include "apiserver/testing/in_memory.h"

namespace varda::agent::core {
namespace core_test {

using codec::Json;

constexpr const char* kNodes = "/apis/edgeai.io/v1alpha1/edgenodes";

/// Records its calls, and answers with the newest list.
class Recorder final : public NodeComponent {
 public:
  explicit Recorder(std::string key) : key_(std::move(key)) {}
  void apply(const WorkList& list) override {
    if (on_apply) on_apply(list);
    calls += "apply " + std::to_string(list.id.generation) + ", ";
    answered = list.id;
  }
  void load() override { calls += "load, "; }
  void adopt(const api::EdgeNodeStatus&) override { calls += "adopt, "; }
  std::vector<runtime::Task> tasks() override { return {}; }
  ListId put_report(api::EdgeNodeStatus& status, const api::EdgeNodeStatus&) const override {
    status.datasets.emplace_back().key = key_;
    status.datasets.back().state = "Pending";
    return answered;
  }
  void finish() override { calls += "finish, "; }
  void report() { publish(); }

  std::function<void(const WorkList&)> on_apply;
  std::string calls;
  ListId answered;

 private:
  const std::string key_;
};

class CoreTest : public ::testing::Test {
 protected:
  CoreTest() { create(); }
  /// A new process over the same disk.
  void create() {
    informer_ = {};  // stops and joins
    core_.reset();
    one_ = std::make_unique<Recorder>("one");
    two_ = std::make_unique<Recorder>("two");
    core_ =
        std::make_unique<Core>(client_, Core::Options{.link = {.node_name = "edge0"}},
                               *state_store_, std::vector<NodeComponent*>{one_.get(), two_.get()});
  }
  void load() {
    core_->load();
    tasks_ = core_->tasks();
    informer_ =
        std::jthread([task = this->task("informer edgenodes")](const std::stop_token& stop) {
          runtime::run_tasks(Context(stop), {task});
        });
  }
  const runtime::Task& task(std::string_view name) {
    return *std::find_if(tasks_.begin(), tasks_.end(),
                         [name](const runtime::Task& task) { return task.name == name; });
  }
  /// Waits until the task is due, and steps it.
  void run(std::string_view name) {
    const runtime::Task& task = this->task(name);
    while (!task.due() || *task.due() > system_clock().now()) std::this_thread::yield();
    task.step(Context::background());
  }
  /// Creates the object, or changes its work.
  void assign(const std::string& path) {
    const Json spec = Json::object(
        {{"datasets", Json::array({Json::object({{"key", "datasets.edgeai.io/default/d"},
                                                 {"uid", "u"},
                                                 {"path", path},
                                                 {"format", "csv"}})})}});
    const Json object = Json::object({{"apiVersion", "edgeai.io/v1alpha1"},
                                      {"kind", "EdgeNode"},
                                      {"metadata", Json::object({{"name", "edge0"}})},
                                      {"spec", spec}});
    if (api_.post(kNodes, object).status == 201) return;
    const auto patched =
        api_.merge_patch(kNodes + std::string("/edge0"), Json::object({{"spec", spec}}));
    CHECK(patched.status == 200);
  }
  Json status() { return api_.get(kNodes + std::string("/edge0")).body["status"]; }

  apiserver::InMemoryApiServer api_{{.crds = api::crds()}};
  kube::Client client_{api_.transport(), {}};
  std::unique_ptr<StateStore> state_store_ = StateStore::in_memory();
  std::unique_ptr<Recorder> one_, two_;
  std::unique_ptr<Core> core_;
  std::vector<runtime::Task> tasks_;
  std::jthread informer_;
};

TEST_F(CoreTest, AListIsOnDiskBeforeAComponentSeesIt) {
  assign("/data/a");
  load();
  EXPECT_EQ(one_->calls, "load, ");
  one_->on_apply = [this](const WorkList& list) {
    const auto persisted = WorkListStore(*state_store_).load();
    ASSERT_TRUE(persisted);
    EXPECT_EQ(persisted->id, list.id);
    EXPECT_EQ(persisted->spec.to_json(), list.spec.to_json());
  };
  run("work list");
  EXPECT_EQ(one_->calls, "load, adopt, apply 1, ");
  EXPECT_EQ(two_->calls, one_->calls);
  core_->finish();
  EXPECT_EQ(two_->calls, "load, adopt, apply 1, finish, ");
}

TEST_F(CoreTest, ACrashBetweenPersistingAndApplyingLosesNothing) {
  assign("/data/a");
  load();
  one_->on_apply = [](const WorkList&) { throw 1; };  // the process ends here
  EXPECT_ANY_THROW(run("work list"));
  EXPECT_EQ(two_->calls, "load, adopt, ");
  create();
  load();
  EXPECT_EQ(one_->calls, "apply 1, load, ");
  EXPECT_EQ(two_->calls, "apply 1, load, ");
  // The server's list is the same, so the components do not see it again.
  run("work list");
  EXPECT_EQ(two_->calls, "apply 1, load, adopt, ");
}

TEST_F(CoreTest, NothingIsWrittenBeforeEveryComponentHasReported) {
  assign("/data/a");
  load();
  one_->report();
  run("report");  // the EdgeNode has arrived
  EXPECT_TRUE(status().is_null());
  two_->report();
  run("report");
  EXPECT_EQ(status()["datasets"].size(), 2U);
  EXPECT_FALSE(status().contains("observedGeneration"));
}

TEST_F(CoreTest, AMissingObjectIsCreatedWithTheFirstReport) {
  load();
  one_->report();
  two_->report();
  run("report");
  EXPECT_EQ(status()["datasets"].size(), 2U);
}

TEST_F(CoreTest, TheLowestGenerationThatAllComponentsObservedIsReported) {
  assign("/data/a");
  assign("/data/b");
  assign("/data/c");
  load();
  run("work list");
  ASSERT_EQ(one_->answered.generation, 3);
  two_->answered.generation = 2;
  one_->report();
  two_->report();
  run("report");
  EXPECT_EQ(status()["observedGeneration"].as_integer(), 2);
  run("work list");  // the watch delivers the report
  two_->answered.uid = "the object before";
  two_->report();
  run("report");
  EXPECT_FALSE(status().contains("observedGeneration"));
}

}  // namespace core_test
}  // namespace varda::agent::core
